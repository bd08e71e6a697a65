// RMSNorm as one autograd function.
#pragma once

#include <optional>

#include "tessera/ops/activation.h"

namespace tessera::ops {

// Returns weight * (x / sqrt(mean(x^2 over the last dim) + eps)).
//
// x: [..., hidden], float32, float64 or bfloat16; weight: [hidden], any of these types. Statistics and
// products are taken in float32 (float64 for float64); the normalised value is rounded to x's type before the
// product with the weight, as in Transformers' LlamaRMSNorm. The result has x's shape and type. Saves x,
// weight and one number per row for the backward.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

struct NormedResidual {
  at::Tensor residual;
  Activation normed;
};

// Returns residual = x + delta (x itself without a delta), and its rms_norm for products to read: they
// recompute it from what is saved here, and leave their gradients to this op. delta: x's shape and type.
NormedResidual add_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& delta,
                            const at::Tensor& weight, double eps);

}  // namespace tessera::ops
