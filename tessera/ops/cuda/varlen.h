// Attention over spans as calls of a kernel for documents of any lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/attention.h"
#include "tessera/ops/seen_spans.h"

namespace tessera::ops::cuda {

// One call of a kernel for several documents, one behind the other. Query i of a document sees the keys from
// i + d - left to i + d + right, where d is the number of the document's keys less that of its queries (so
// that the last query sees the last key). -1: unbounded.
struct VarlenCall {
  std::vector<SeenSpan> spans;  // the documents
  int64_t left = -1, right = -1;

  bool is_causal() const { return right == 0; }
  // Returns where the documents begin among the queries, or the keys, and as the last number where the last
  // one ends.
  std::vector<int32_t> starts(int64_t SeenSpan::*count) const;
  // Returns a bound of the documents' lengths, at least 2: flash attention 2 treats a batch of single queries
  // as a case of its own, which documents of one token then are not.
  int64_t longest(int64_t SeenSpan::*count) const;
};

// Returns the calls that attention over the spans takes: spans of equal bounds share a call. Any band of keys
// has such bounds (seen_spans), so every span is in a call.
std::vector<VarlenCall> varlen_calls(const std::vector<AttentionSpan>& spans,
                                     const AttentionFormula& formula);

// A kernel for such calls. q: [queries, heads, head_dim], k, v: [keys, kv_heads, head_dim], the rows of the
// call's documents and no others; log_sum: [heads, queries], in any strides.
struct VarlenKernel {
  AttentionResult (*forward)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const VarlenCall& call, double scale);
  AttentionGradients (*backward)(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, const AttentionResult& result, const VarlenCall& call,
                                 double scale);
};

// Compute attend_spans() and its gradient by such a kernel. Rows that lie in the order of the documents are
// not copied.
AttentionResult attend_by(const VarlenKernel& kernel, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const std::vector<AttentionSpan>& spans,
                          const AttentionFormula& formula);
AttentionGradients differentiate_by(const VarlenKernel& kernel, const at::Tensor& grad_out,
                                    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionResult& result, const std::vector<AttentionSpan>& spans,
                                    const AttentionFormula& formula);

}  // namespace tessera::ops::cuda
