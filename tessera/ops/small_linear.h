// The linear layer for a few rows, as in decoding, where reading the weights is all the work.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// From this many rows on a matrix product is faster.
inline constexpr int64_t kSmallLinearRows = 16;

// Whether a layer should go through small_linear: at most kSmallLinearRows rows, dense weights, and under
// c10::InferenceMode, that is in generation. What a backward recomputes must round as it did in the
// forward, with gradient or without.
bool is_small_linear(const at::Tensor& x, const at::Tensor& weight);

// x weight^T + bias without gradient; x: [..., in], weight: [out, in], bias: [out], float32, float64 or
// bfloat16 (summed in float32, rounded once), or x in float32 over weights in bfloat16. Reads every weight
// once, over all threads. A row's result depends on that row alone, to the last bit, for any number of rows
// and threads.
at::Tensor small_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

struct LinearOperands {
  at::Tensor weight;
  std::optional<at::Tensor> bias;
};

// Several layers over one input, in one go over the threads. Equal to small_linear on each.
std::vector<at::Tensor> small_linears(const at::Tensor& x, const std::vector<LinearOperands>& layers);

}  // namespace tessera::ops
