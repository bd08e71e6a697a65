#include "tessera/nn/attention_core.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/kv_cache.h"
#include "tessera/ops/attention.h"

namespace tessera::nn {
namespace {

struct DocumentAttention : AttentionCore {
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const SequenceContext& context, int64_t layer,
                    const ops::AttentionFormula& formula) const override {
    if (q.size(1) == 0) return attention_of_no_heads(q, k, v, formula);
    if (context.cache == nullptr) return ops::document_attention(q, k, v, context.document_starts, formula);
    if (!formula.is_causal) {
      throw Error(ErrorKind::Config, "ATTENTION", "bidirectional attention does not run over a cache")
          .hint("compute whole documents");
    }
    return context.cache->attend(layer, q, k, v, formula);
  }
};

}  // namespace

at::Tensor attention_of_no_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ops::AttentionFormula& formula) {
  const at::Tensor none = q + k + v;
  return formula.sinks.defined() ? none + formula.sinks.sum().to(none.scalar_type()) : none;
}

std::shared_ptr<const AttentionCore> document_attention() {
  static const auto core = std::make_shared<const DocumentAttention>();
  return core;
}

}  // namespace tessera::nn
