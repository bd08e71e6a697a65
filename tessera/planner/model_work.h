// The work and the sizes of a model, by part; plain numbers, from which every sum of the planner starts.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::planner {

// `count` weights [out, in] of a block. Of the tokens, `share` go through each one: 1, or for experts the
// experts that a token takes over all there are.
struct Matrix {
  double in = 0.0, out = 0.0;
  double count = 1.0, share = 1.0;
  bool cuts_input = false;  // by tensor parallelism; else its output is cut
  bool is_expert = false;
  bool is_into_mlp = false;  // makes the input of the MLP's nonlinearity

  double parameters() const { return in * out * count; }
  // Bytes in codes of so many bits, with a scale of four bytes for each of the blocks into which a row is
  // cut.
  double coded_bytes(double bits, double block) const {
    return out * count * (std::ceil(in * bits / 8.0) + 4.0 * std::ceil(in / block));
  }
};

struct ModelWork {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, vocab = 0;
  double head_dim = 0.0;
  bool has_stages = true;  // the layers can be the stages of a pipeline
  // The parts of the mean block.
  std::vector<Matrix> block;
  double block_parameters = 0.0;
  double mlp_width = 0.0;  // elements between the MLP's products, of the experts that a token takes
  bool is_gated = true;
  double experts_per_token = 0.0;  // 0 = dense
  double pair_flops = 0.0;         // of the forward of attention, for two tokens that see each other
  double state_flops = 0.0;        // of the forward of a mixer with a state outside its matrices, for a token

  double embedding_parameters = 0.0;
  double head_parameters = 0.0;  // 0 where the embedding is the head

  double parameters() const {
    return static_cast<double>(layers) * block_parameters + embedding_parameters + head_parameters;
  }
  double query_width() const { return static_cast<double>(heads) * head_dim; }
  double kv_width() const { return 2.0 * static_cast<double>(kv_heads) * head_dim; }
  // Floating-point operations of a token's forward in a block, without attention's.
  double block_flops() const;
  // Floating-point operations of a forward and backward of one token, in a document of `sequence` tokens,
  // with attention's counted without its mask: what papers divide by the peak for the MFU (Chowdhery et al.,
  // "PaLM", 2022, appendix B).
  double flops_per_token(double sequence) const;
};

// A decoder by its sizes, as papers and configurations state them.
struct ModelShape {
  int64_t layers = 0, hidden = 0, inner = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  bool is_gated = true, is_tied = false;
  int64_t experts = 0, experts_per_token = 0;
};

ModelWork model_work(const ModelShape& shape);

}  // namespace tessera::planner
