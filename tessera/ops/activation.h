// Inputs of products that are recomputed in the backward pass instead of being kept for it.
#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include "tessera/ops/e4m3.h"

namespace tessera::ops {

// How to recompute a value, and the gradient that its readers have for it. Shared by the op that made the
// value, which must hold what make() needs anyway, and by the products that read it. Used by one thread.
class ActivationSource : public torch::CustomClassHolder {
 public:
  // The value without its graph: made at the first call, and kept until free_value() or the end of the
  // source.
  const at::Tensor& value();
  // The value as an operand of products in fp8, for as long.
  E4m3Operand& value_operand();
  // Of the value in the forward, from a product that has cast it: what is made again has the same numbers.
  void keep_scale(const at::Tensor& scale) { scale_ = scale; }
  void free_value();

  // Whether readers add their gradients to `gradient` and give none to autograd. The op that made the value
  // takes it from there: it runs after all of them.
  virtual bool collects_gradient() const = 0;
  at::Tensor gradient;

 protected:
  virtual at::Tensor make() const = 0;

 private:
  at::Tensor value_, scale_;
  std::optional<E4m3Operand> operand_;
};

// A tensor on its way into products. With a source, a product keeps that instead of the tensor.
class Activation {
 public:
  Activation(at::Tensor value, c10::intrusive_ptr<ActivationSource> source = {})  // NOLINT: a tensor is one
      : value_(std::move(value)), source_(std::move(source)) {}

  const at::Tensor& value() const { return value_; }
  const c10::intrusive_ptr<ActivationSource>& source() const { return source_; }

 private:
  at::Tensor value_;
  c10::intrusive_ptr<ActivationSource> source_;
};

}  // namespace tessera::ops
