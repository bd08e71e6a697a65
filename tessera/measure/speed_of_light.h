// Tells how fast a step could be if it were its matrix products alone.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/TensorOptions.h>

#include "tessera/models/common/causal_lm.h"
#include "tessera/nn/gated_delta_net.h"
#include "tessera/ops/e4m3.h"

namespace tessera::measure {

// `count` products [m, k] x [k, n].
struct GemmShape {
  int64_t m = 0, n = 0, k = 0, count = 0;
  ops::ProductType type = ops::ProductType::OfOperands;
  bool operator==(const GemmShape&) const = default;
};

// The matrix products of a step.
struct StepGemms {
  std::vector<GemmShape> layers;  // over all tokens
  std::vector<GemmShape> head;    // the output projection, over tokens with a label
};

// Returns the products of one forward and backward over `tokens` tokens, `label_tokens` of which reach the
// output projection: for each layer the forward, the gradient of its input, and the gradient of each weight
// that trains; adapters included. Equal shapes of a list are counted together. Products count as fp8 where
// their layer multiplies so (nn/e4m3_layers.h) and the result has a width that fp8 takes. Attention's own
// products are left out.
StepGemms step_gemms(const models::CausalLM& model, int64_t tokens, int64_t label_tokens);

// The code that multiplies: ops/product.h, as in a step, or LibTorch.
enum class GemmPath { Ours, LibTorch };

// Returns the seconds that these products take here and now, in the dtype of `options`, with the threads that
// a step uses. Products in fp8 are timed with operands that are cast already, without the casts, and by our
// path alone.
double measure_gemms(const std::vector<GemmShape>& gemms, const at::TensorOptions& options,
                     GemmPath path = GemmPath::Ours);

// Returns the GFLOP/s of a product of 1024 x 1024 matrices, on a GPU of 8192 x 8192.
double gemm_rate(const at::TensorOptions& options, GemmPath path = GemmPath::Ours,
                 ops::ProductType type = ops::ProductType::OfOperands);

// Returns the floating-point operations of the products.
double gemm_flops(const std::vector<GemmShape>& gemms);

// Returns the operations of a gated delta net's forward for one token, outside its projections: the products
// of its memory with a key and a query, and that of a key with what is written, six for each element of the
// memory of each head.
double state_flops(const nn::GatedDeltaNet& mixer);

// Floating-point operations, by what they grow with.
struct FlopCount {
  double per_token = 0.0;
  double per_token_e4m3 = 0.0;  // in fp8, which per_token leaves out
  double per_label = 0.0;       // of the output projection, which runs over tokens with a label
  double per_pair = 0.0;        // of two tokens of one document: attention

  // Returns the operations of so many tokens; each one in fp8 counts `e4m3_weight`.
  double of(int64_t tokens, int64_t label_tokens, int64_t token_pairs, double e4m3_weight = 1.0) const;
};

// Returns the operations that a forward and backward of the layers at hand need: the products of
// step_gemms(), state_flops(), and attention's, counted without its mask as the literature does (Chowdhery et
// al., "PaLM", 2022, appendix B: 12 x layers x heads x head_dim x sequence_len a token).
FlopCount model_flops(const models::CausalLM& model);
// Returns the operations that activation checkpointing runs once more (Korthikanti et al., "Reducing
// Activation Recomputation in Large Transformer Models", 2022): the forward of every `checkpoint_every`-th
// block (0: of none), or, with `recompute_mlps`, the products into each MLP.
FlopCount recomputed_flops(const models::CausalLM& model, int64_t checkpoint_every, bool recompute_mlps);

}  // namespace tessera::measure
