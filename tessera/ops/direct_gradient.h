// Gradients that ops add to a parameter themselves, in a type of its own.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// From now on linear, linear_cross_entropy and embedding add the gradient of the leaf `parameter` straight to
// parameter.grad(), in `type` (float32 for a bf16 parameter, say), and hand autograd none for it: no product
// is stored, filled with zeros, rounded or added a second time. Other ops' gradients are added by autograd as
// ever, to the same tensor. The parameter's gradient accumulator still runs in every backward, after all of
// these, so a hook on it sees the whole. Not for parameters whose gradients are asked for by
// torch::autograd::grad(). The mark goes when the parameter's tensor is replaced.
void accumulate_directly(const at::Tensor& parameter, at::ScalarType type);

// The type given for `parameter`, if it was marked, requires a gradient, and has no hook of its own that
// would have to see the gradient on its way.
std::optional<at::ScalarType> direct_gradient_type(const at::Tensor& parameter);

// parameter.grad() += a^T b for a: [n, out], b: [n, in], parameter: [out, in], of one type. The sum is taken
// in the gradient's type, for bf16 operands too. In a DeferGradientsScope it is left to that; a and b must
// stay as they are until then.
void add_product_to_gradient(const at::Tensor& parameter, const at::Tensor& a, const at::Tensor& b);
// parameter.grad() += gradient, of the parameter's shape. As add_product_to_gradient().
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace tessera::ops
