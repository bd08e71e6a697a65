// How fast a step could be if it were its matrix products alone.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/TensorOptions.h>

#include "tessera/models/common/causal_lm.h"

namespace tessera::train {

// `count` products [m, k] x [k, n].
struct GemmShape {
  int64_t m = 0, n = 0, k = 0, count = 0;
  bool operator==(const GemmShape&) const = default;
};

struct StepGemms {
  std::vector<GemmShape> layers;  // over all tokens
  std::vector<GemmShape> head;    // the output projection, over tokens with a label
};

// The products of one forward and backward over `tokens` tokens, `label_tokens` of which reach the output
// projection: for each layer the forward, the gradient of its input, and the gradient of each weight that
// trains; adapters included. Equal shapes of a list are counted together. Attention's own products are left
// out.
StepGemms step_gemms(const models::CausalLM& model, int64_t tokens, int64_t label_tokens);

// Who multiplies: ops/product.h, as a step does, or LibTorch.
enum class GemmPath { Ours, LibTorch };

// Seconds that these products take here, now, in `type`, with the threads that a step uses.
double measure_gemms(const std::vector<GemmShape>& gemms, const at::TensorOptions& options,
                     GemmPath path = GemmPath::Ours);

// GFLOP/s of a product of 1024 x 1024 matrices.
double gemm_rate(const at::TensorOptions& options, GemmPath path = GemmPath::Ours);

// Floating-point operations of the products.
double gemm_flops(const std::vector<GemmShape>& gemms);

}  // namespace tessera::train
