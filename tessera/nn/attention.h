// Grouped-query self-attention.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "tessera/nn/attention_core.h"
#include "tessera/nn/attention_dropout.h"
#include "tessera/nn/bare_values.h"
#include "tessera/nn/latent_projections.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/sequence.h"

namespace tessera::nn {

// Norms of the queries and the keys.
struct QkNormOptions {
  // Head: over each head, with one scale for all heads. EachHead: over each head, with a scale for each.
  // Projection: over the outputs of a projection, all heads together.
  enum class Over { Head, EachHead, Projection };
  NormOptions norm;
  Over over = Over::Head;
  bool is_after_rotation = false;
  bool norms_values = false;  // each head of the values goes through an RMSNorm without a scale, too
  std::string q = "q_norm", k = "k_norm";  // names in the family's files
  std::string stored_list = {};            // of EachHead: see HeadNorm
};

struct AttentionOptions {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  std::optional<QkNormOptions> qk_norm;
  double clip = 0.0;  // q, k and v are bounded by -clip and clip; 0: they are not
  // Number of the table of SequenceContext::rotary by which queries and keys are rotated; -1: they are not.
  int64_t rotary = 0;
  bool is_interleaved = false;  // as in ops::RopeForm
  std::optional<double> scale;  // factor of the scores; 1 / sqrt(head_dim) unless set
  // The following three are those of ops::AttentionFormula.
  bool is_causal = true;
  int64_t window = 0;
  double soft_cap = 0.0;
  double dropout = 0.0;    // probability of dropout of attention's probabilities, in training
  bool has_sinks = false;  // each head has a sink (ops::AttentionFormula::sinks)
  // Scores grow by SequenceContext::key_bias, or, if `scales_bias`, by that times the scale. num_kv_heads is
  // num_heads then.
  bool has_key_bias = false, scales_bias = false;
  // If not 0, documents are cut into chunks of so many tokens, and no token sees one of another chunk. Tokens
  // that a cache holds must be in one chunk, and so must documents that are spread over ranks.
  int64_t chunk = 0;
  // The projection of the queries gives a gate behind the query of each head; what the head gathers is
  // multiplied by the sigmoid of it. For q, k and v of layers of their own.
  bool has_output_gate = false;
  // Number of SequenceContext::shared_keys to which the layer gives its keys and values, as they are in its
  // attention and in a cache; -1: to none. A layer without the name `k` makes none and reads these, which
  // have its heads.
  int64_t shared_keys = -1;
  bool reads_keys() const { return k.empty(); }
  // Names of the projections in the family's files. Without `v` the outputs of `k` are the values, too, as
  // they are before the norm of the keys, which there must be. If `qkv` has a name, one layer makes q, k and
  // v. It holds the rows of each key/value head's queries, key and value side by side, so that a contiguous
  // part of its outputs is a part of the heads. The files hold them in this order, too, if
  // `is_stored_by_head`, or else all rows of q, then of k, then of v.
  std::string q = "q_proj", k = "k_proj", v = "v_proj", o = "o_proj", qkv;
  bool is_stored_by_head = false;
  // If set, these projections make queries, keys and values. num_kv_heads is num_heads then.
  std::optional<LatentOptions> latent;
};

// Grouped-query attention. Its children are the projections and, by option, q_norm and k_norm, `sinks`, and
// `attention_dropout`.
// The number of heads is taken from the projections' weights, since tensor parallelism may leave only a part
// of them. Nothing is rotated if the context has no table of the number that the options give.
class Attention : public Layer {
 public:
  // `layer` is the number of the block; it selects the layer of a key/value cache. A layer that reads the
  // keys of another has its number.
  Attention(const AttentionOptions& options, int64_t layer, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size].
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  // Replaces the core, which is document_attention() at first.
  void set_core(std::shared_ptr<const AttentionCore> core) { core_ = std::move(core); }

  // Returns the shape of the keys and values that this layer attends to.
  CachedHeads cached_heads() const;
  // Tells whether they are another layer's.
  bool reads_keys() const { return qkv_proj == nullptr && k_proj == nullptr && !latent_; }

  // Either q_proj, k_proj and, unless the keys are the values, v_proj exist or qkv_proj does, or q_proj alone
  // if the keys are another layer's, or none of them in latent attention; the others are null.
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj, qkv_proj;
  std::shared_ptr<Norm> q_norm, k_norm, v_norm;  // null without norms
  std::shared_ptr<BareValues> sinks;             // null without sinks
  std::shared_ptr<AttentionDropout> dropout;     // null without dropout

 private:
  at::Tensor run_heads(const ops::Activation& x, const SequenceContext& context) const;
  at::Tensor run_latent(const ops::Activation& x, const SequenceContext& context) const;
  // Returns the table by which queries and keys are rotated; null if they are not.
  const RotaryTable* rotary_table(const SequenceContext& context) const;
  // Returns q, k and v, each as [tokens, heads * head_dim] or as [tokens, heads, head_dim], and the gate,
  // which is undefined without one, as are keys and values of another layer.
  std::array<at::Tensor, 4> project(const ops::Activation& x) const;
  // Gives q, k and v of the attention to other layers, or completes q by the keys and values of another.
  void share_keys(std::array<at::Tensor, 3>& heads, const SequenceContext& context) const;
  // Returns the context for the core, with documents cut into chunks.
  SequenceContext in_chunks(const SequenceContext& context) const;
  // Returns the number of the first query head here among those of all ranks.
  int64_t first_head() const;
  // Returns the formula for these queries, with their dropout.
  ops::AttentionFormula formula_of(const at::Tensor& q) const;
  // Returns the biases of the keys of the heads here, as addends of the products of queries and keys.
  at::Tensor own_biases(const at::Tensor& key_bias) const;
  // Returns the width of the keys here, kv_heads * head_dim.
  int64_t kv_size() const;

  at::Tensor in_heads(const at::Tensor& y) const;
  // Return the normed or rotated queries or keys; `x` may be overwritten.
  at::Tensor normed(const Norm& norm, const at::Tensor& x) const;
  at::Tensor rotated(const at::Tensor& x, const RotaryTable& table) const;

  int64_t head_dim_, group_, layer_, rotary_, shared_keys_;
  bool is_interleaved_, has_output_gate_, has_key_bias_, scales_bias_;
  int64_t chunk_;
  double clip_;
  std::optional<QkNormOptions> qk_norm_;
  ops::AttentionFormula formula_;
  std::shared_ptr<const AttentionCore> core_;
  std::optional<LatentProjections> latent_;
};

}  // namespace tessera::nn
