// Inputs of products that are recomputed in the backward pass instead of being kept for it.
#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include "tessera/ops/e4m3.h"

namespace tessera::ops {

// Recomputes a value in the backward, and collects the gradient that the readers of the value have for it.
// The op that made the value shares its source with the products that read the value, and must hold what
// make() needs anyway. Used by one thread.
class ActivationSource : public torch::CustomClassHolder {
 public:
  // Returns the value without its graph: made at the first call, and kept until free_value() or the end of
  // the source.
  const at::Tensor& value();
  // Returns the value as an operand of products in fp8; it lives as long as the value.
  E4m3Operand& value_operand();
  // Keeps the e4m3 scale that a product of the forward has found for the value: the recomputed value has the
  // same numbers.
  void keep_scale(const at::Tensor& scale) { scale_ = scale; }
  void free_value();

  // Tells whether readers add their gradients to `gradient` and give none to autograd. The backward of the op
  // that made the value takes the sum from there: it runs after all readers' backwards.
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
