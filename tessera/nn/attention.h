// Grouped-query self-attention with rotary positions.
#pragma once

#include <memory>

#include "tessera/nn/attention_core.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/nn/sequence.h"

namespace tessera::nn {

struct AttentionOptions {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;  // RMSNorm over each head's query and key, before the rotation
  double norm_eps = 1e-6;
};

// Children: q_proj, k_proj, v_proj, o_proj and, by option, q_norm, k_norm. The heads are those of the
// projections' weights, which may hold a part of them.
class Attention : public Layer {
 public:
  // `layer` is the block's number, which chooses its part of the cache.
  Attention(const AttentionOptions& options, int64_t layer, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  // causal_attention() unless set.
  void set_core(std::shared_ptr<const AttentionCore> core) { core_ = std::move(core); }

  // Of the keys and values that it adds to a cache.
  CachedHeads cached_heads() const;

  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
  std::shared_ptr<RMSNorm> q_norm, k_norm;  // null without qk_norm

 private:
  at::Tensor run_heads(const ops::Activation& x, const SequenceContext& context) const;

  int64_t head_dim_, layer_;
  std::shared_ptr<const AttentionCore> core_;
};

}  // namespace tessera::nn
