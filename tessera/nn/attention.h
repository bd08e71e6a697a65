// Grouped-query self-attention.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

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
  std::optional<double> scale;  // of the scores; 1 / sqrt(head_dim) unless set
  // ops::AttentionFormula
  bool is_causal = true;
  int64_t window = 0;
  double soft_cap = 0.0;
  // Of the projections, as the family's files name them. Where `qkv` has a name, one layer gives q, k and v.
  // Files hold all of q, then k, then v; the layer each key/value head's queries, key and value side by side,
  // so that a part of its outputs is a part of the heads.
  std::string q = "q_proj", k = "k_proj", v = "v_proj", o = "o_proj", qkv;
};

// Children: the projections and, by option, q_norm and k_norm. The heads are those of the projections'
// weights, which may hold a part of them. Queries and keys are rotated where the context has tables for it.
class Attention : public Layer {
 public:
  // `layer` is the block's number, which chooses its part of the cache.
  Attention(const AttentionOptions& options, int64_t layer, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  // document_attention() unless set.
  void set_core(std::shared_ptr<const AttentionCore> core) { core_ = std::move(core); }

  // Of the projections.
  ops::ProductType product_type() const { return o_proj->product_type(); }

  // Of the keys and values that it adds to a cache.
  CachedHeads cached_heads() const;

  // Null where it has others in place of them.
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj, qkv_proj;
  std::shared_ptr<RMSNorm> q_norm, k_norm;

 private:
  at::Tensor run_heads(const ops::Activation& x, const SequenceContext& context) const;
  // q, k and v: [tokens, heads * head_dim], or [tokens, heads, head_dim].
  std::array<at::Tensor, 3> project(const ops::Activation& x) const;
  int64_t kv_size() const;

  int64_t head_dim_, group_, layer_;
  ops::AttentionFormula formula_;
  std::shared_ptr<const AttentionCore> core_;
};

}  // namespace tessera::nn
