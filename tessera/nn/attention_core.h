// Attention itself, between the projections: from queries, keys and values to what each token gathers.
#pragma once

#include <memory>

#include "tessera/nn/sequence.h"

namespace tessera::nn {

// What a layout that cuts documents into pieces replaces. Run again where a hook runs its block again.
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;

  // q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim], heads a multiple of kv_heads; the
  // result is contiguous, like q. `layer` is the block's number, `scale` multiplies q k^T.
  virtual at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const SequenceContext& context, int64_t layer, double scale) const = 0;
};

// Causal inside every document (ops::document_attention), or over the context's cache.
std::shared_ptr<const AttentionCore> causal_attention();

}  // namespace tessera::nn
