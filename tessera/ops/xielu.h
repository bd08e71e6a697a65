// The activation xIELU as one autograd function.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// The numbers of xIELU, each [1], of the type that x is computed in. beta and eps have no gradient.
struct XieluNumbers {
  at::Tensor p, n, beta, eps;
};

// Returns p x^2 + beta x where x > 0, and n (exp(min(x, eps)) - 1 - x) + beta x elsewhere (Huang and Schlag,
// arXiv 2411.13010, section 3), in the shape and type of x: float32, float64, or bfloat16, which is computed
// in float32. Saves its operands alone.
at::Tensor xielu(const at::Tensor& x, const XieluNumbers& numbers);

}  // namespace tessera::ops
