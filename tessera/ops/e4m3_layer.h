// Casts and scales that the products of a linear layer in fp8 share, also between its forward and its
// backward, which reads the same numbers.
#pragma once

#include <optional>

#include <torch/csrc/autograd/custom_function.h>

#include "tessera/ops/activation.h"
#include "tessera/ops/e4m3.h"

namespace tessera::ops {

// The operands of a layer's forward: x [..., in] and weight [out, in]. While it lives, products in e4m3 cast
// each of them once. Does nothing if product_type() is not E4m3.
class ForwardOperands {
 public:
  ForwardOperands(const at::Tensor& x, const at::Tensor& weight);

  // Keeps the scales that the products have found for the backward: x's in its source, if it has one, else in
  // ctx; the weight's in ctx.
  void keep(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<ActivationSource>& source) const;

 private:
  at::Tensor rows_;
  std::optional<E4m3Operand> x_, weight_;
  std::optional<E4m3OperandsScope> scope_;
};

// The scales that keep() left in ctx, for the backward; undefined if the forward found none. `x` is undefined
// too if x has a source, which then keeps its scale.
struct LayerScales {
  at::Tensor x, weight;
};
LayerScales kept_scales(torch::autograd::AutogradContext& ctx);

}  // namespace tessera::ops
