#include "tessera/ops/general_attention.h"

#include <limits>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

at::Tensor general_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<int64_t>& document_starts, const AttentionFormula& formula) {
  const trace::Scope trace_scope("general_attention");
  TESSERA_CHECK_ARGUMENT(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && k.size(1) > 0 &&
                             q.size(1) % k.size(1) == 0 && q.size(0) == k.size(0) && q.size(2) == k.size(2),
                         "general_attention: shapes of q, k, v");
  const int64_t group = q.size(1) / k.size(1);
  const at::ScalarType exact = compute_type(q.scalar_type());
  std::vector<at::Tensor> documents;
  for (size_t i = 0; i + 1 < document_starts.size(); ++i) {
    const int64_t first = document_starts[i], length = document_starts[i + 1] - first;
    if (length == 0) continue;
    // [heads, length, head_dim]
    const auto heads = [&](const at::Tensor& x, int64_t copies) {
      return x.narrow(0, first, length).repeat_interleave(copies, 1).transpose(0, 1).to(exact);
    };
    at::Tensor scores = at::matmul(heads(q, 1), heads(k, group).transpose(1, 2)) * formula.scale;
    if (formula.soft_cap > 0) scores = formula.soft_cap * at::tanh(scores / formula.soft_cap);
    if (formula.is_causal) {
      const at::Tensor hidden = at::ones({length, length}, scores.options().dtype(at::kBool)).triu(1);
      scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    }
    const at::Tensor seen = at::matmul(at::softmax(scores, -1), heads(v, group));
    documents.push_back(seen.transpose(0, 1).to(q.scalar_type()));
  }
  return documents.empty() ? q + 0 : at::cat(documents).contiguous();
}

}  // namespace tessera::ops
