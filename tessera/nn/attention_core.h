// Attention itself, between the projections: from queries, keys and values to what each token gathers.
#pragma once

#include <memory>

#include "tessera/nn/sequence.h"
#include "tessera/ops/attention_formula.h"

namespace tessera::nn {

// What a layout that cuts documents into pieces replaces. Run again where a hook runs its block again.
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;

  // q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim], heads a multiple of kv_heads; the
  // result is contiguous, like q. `layer` is the block's number.
  virtual at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const SequenceContext& context, int64_t layer,
                            const ops::AttentionFormula& formula) const = 0;
};

// Attention inside every document of the context, or over its cache. A cache holds no later tokens:
// bidirectional attention over one is an Error(Config, "ATTENTION").
std::shared_ptr<const AttentionCore> document_attention();

}  // namespace tessera::nn
