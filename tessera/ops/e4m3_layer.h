// What the products of a linear layer share where they are in fp8: casts, and scales from its forward to its
// backward, which reads the same numbers.
#pragma once

#include <optional>

#include <torch/csrc/autograd/custom_function.h>

#include "tessera/ops/activation.h"
#include "tessera/ops/e4m3.h"

namespace tessera::ops {

// Of a forward: x [..., in] and weight [out, in]. While one lives, products in e4m3 cast each of them once.
// Does nothing where product_type() is another.
class ForwardOperands {
 public:
  ForwardOperands(const at::Tensor& x, const at::Tensor& weight);

  // Leaves the scales that the products have found to the backward; that of x to its source, where it has
  // one.
  void keep(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<ActivationSource>& source) const;

 private:
  at::Tensor rows_;
  std::optional<E4m3Operand> x_, weight_;
  std::optional<E4m3OperandsScope> scope_;
};

// In the backward; undefined where they were not found. x's is that of an input without a source.
struct LayerScales {
  at::Tensor x, weight;
};
LayerScales kept_scales(torch::autograd::AutogradContext& ctx);

}  // namespace tessera::ops
