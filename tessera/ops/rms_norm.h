// RMSNorm as one autograd function.
#pragma once

#include <optional>

#include "tessera/ops/activation.h"

namespace tessera::ops {

// weight * (x / sqrt(mean(x^2 over the last dimension) + eps)).
//
// x: [..., hidden], float32, float64 or bfloat16; weight: [hidden], any of these types. Statistics and
// products are taken in float32 (float64 for float64), the normalised value is rounded to x's type before the
// product with the weight, as Transformers' LlamaRMSNorm does. The result has x's shape and type. Saves x,
// weight and one number a row for the backward pass.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

struct NormedResidual {
  at::Tensor residual;
  Activation normed;
};

// residual = x + delta (x itself without a delta), and its rms_norm for products to read, which recompute it
// from what is saved here and leave their gradients to this op. delta: x's shape and type.
NormedResidual add_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& delta,
                            const at::Tensor& weight, double eps);

}  // namespace tessera::ops
