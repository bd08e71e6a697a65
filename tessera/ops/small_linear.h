// The linear layer for a few rows, as in decoding, where reading the weights is all the work.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/weight.h"

namespace tessera::ops {

// The most rows of small_linear(); a matrix product is faster for more.
inline constexpr int64_t kSmallLinearRows = 16;

// Tells whether a layer should go through small_linear: at most kSmallLinearRows rows, or some more where
// is_panel_linear() says so (panel_linear.h), dense weights, and under c10::InferenceMode, that is in
// generation. Training never takes it, as a recompute in the backward
// must round as the forward did, with gradient or without.
bool is_small_linear(const at::Tensor& x, const Weight& weight);

// Returns x weight^T + bias without gradient, [..., out]; x: [..., in], weight: [out, in], bias: [out],
// float32, float64 or bfloat16 (summed in float32, rounded once), or x in float32 over weights in bfloat16,
// or x in float32 or bfloat16 over coded weights. Reads every weight once, over all threads. A row's result
// depends on that row alone, to the last bit, for any number of threads and of rows up to kSmallLinearRows.
at::Tensor small_linear(const at::Tensor& x, const Weight& weight, const std::optional<at::Tensor>& bias);

struct LinearOperands {
  Weight weight;
  std::optional<at::Tensor> bias;
};

// Returns small_linear() of each layer over one input, computed in one go over the threads.
std::vector<at::Tensor> small_linears(const at::Tensor& x, const std::vector<LinearOperands>& layers);

}  // namespace tessera::ops
