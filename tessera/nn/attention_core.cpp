#include "tessera/nn/attention_core.h"

#include <ATen/ATen.h>

#include "tessera/nn/kv_cache.h"
#include "tessera/ops/attention.h"

namespace tessera::nn {
namespace {

struct CausalAttention : AttentionCore {
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const SequenceContext& context, int64_t layer, double scale) const override {
    // A rank without heads has nothing to add, and all three in its graph.
    if (q.size(1) == 0) return q + k + v;
    if (context.cache != nullptr) return context.cache->attend(layer, q, k, v, scale);
    return ops::document_attention(q, k, v, context.document_starts, scale);
  }
};

}  // namespace

std::shared_ptr<const AttentionCore> causal_attention() {
  static const auto core = std::make_shared<const CausalAttention>();
  return core;
}

}  // namespace tessera::nn
