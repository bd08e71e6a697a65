// Gradients that ops add to a parameter themselves, in a type that is chosen for the gradient.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Marks the leaf `parameter`: from now on linear, grouped_linear, linear_cross_entropy and embedding add its
// gradient straight to parameter.grad(), in `type` (float32 for a bf16 parameter, say), and hand none to
// autograd: no product is stored, filled with zeros, rounded or added a second time. Autograd adds the
// gradients of other ops as ever, to the same tensor. The parameter's gradient accumulator still runs in
// every backward, after all of these, so a hook on it sees the whole. Not for parameters whose gradients are
// asked for by torch::autograd::grad(). The mark goes when the parameter's tensor is replaced.
void accumulate_directly(const at::Tensor& parameter, at::ScalarType type);

// Returns the type given for `parameter` if it was marked, requires a gradient, and has no hook of its own
// that would have to see the gradient on its way.
std::optional<at::ScalarType> direct_gradient_type(const at::Tensor& parameter);

// Adds a^T b to parameter.grad(), for a: [n, out], b: [n, in], parameter: [out, in], all of one type. The sum
// is taken in the gradient's type, for bf16 operands too. In a DeferGradientsScope the product is put off; a
// and b must stay as they are until it has run.
void add_product_to_gradient(const at::Tensor& parameter, const at::Tensor& a, const at::Tensor& b);
// Adds `gradient`, of the parameter's shape, to parameter.grad(); put off as add_product_to_gradient() is.
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace tessera::ops
