// The linear layer in float32 over weights that are kept in bfloat16.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "tessera/ops/weight.h"

namespace tessera::ops {

// Tells whether x is float32 and the weight bfloat16.
bool is_widened_linear(const at::Tensor& x, const Weight& weight);

// Returns x weight^T + bias in float32, [..., out], without gradient, with the numbers that the weights
// widened to float32 would give; no more than a block of them is widened at a time. x: [..., in]; weight:
// [out, in], contiguous; bias: [out].
at::Tensor widened_linear(const at::Tensor& x, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias);

}  // namespace tessera::ops
