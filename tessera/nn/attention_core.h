// Attention itself, between the projections: computes from queries, keys and values what each token gathers.
#pragma once

#include <memory>

#include "tessera/nn/sequence.h"
#include "tessera/ops/attention_formula.h"

namespace tessera::nn {

// Interface that context parallelism replaces, since it cuts documents into pieces. attend() runs a second
// time if a hook reruns its block in the backward (activation checkpointing).
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;

  // Attends from q, [tokens, heads, head_dim], to k and v, [tokens, kv_heads, head_dim]; heads is a multiple
  // of kv_heads. The result is contiguous and has the shape of q. `layer` is the number of the block.
  virtual at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const SequenceContext& context, int64_t layer,
                            const ops::AttentionFormula& formula) const = 0;
};

// Returns the empty result of a rank that was dealt no heads. The operands stay in the graph, so that the
// backward reaches them as on the other ranks.
at::Tensor attention_of_no_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ops::AttentionFormula& formula);

// Returns the core that attends inside every document of the context or, if the context has a cache, over the
// cache. A cache holds no later tokens, so bidirectional attention over one is an Error(Config, "ATTENTION").
std::shared_ptr<const AttentionCore> document_attention();

}  // namespace tessera::nn
