// Attention over spans as calls of a kernel for documents of any lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/attention.h"
#include "tessera/ops/seen_spans.h"

namespace tessera::ops::cuda {

// One call: documents one behind the other, of which query i sees the keys from i + d - left to i + d +
// right, where d is the number of the document's keys less that of its queries (so that the last query sees
// the last key). -1: unbounded.
struct VarlenCall {
  std::vector<SeenSpan> spans;  // the documents
  int64_t left = -1, right = -1;

  bool is_causal() const { return right == 0; }
  // Where the documents begin among the queries, or the keys, and behind the last one where it ends.
  std::vector<int32_t> starts(int64_t SeenSpan::*count) const;
  // A bound of the documents' lengths, at least 2: what is one token long is no case of its own then, which
  // flash attention 2 has for a batch of single queries.
  int64_t longest(int64_t SeenSpan::*count) const;
};

// What spans have in common is one call. Any band of keys is one (seen_spans), so every span is in a call.
std::vector<VarlenCall> varlen_calls(const std::vector<AttentionSpan>& spans,
                                     const AttentionFormula& formula);

// A kernel: q: [queries, heads, head_dim], k, v: [keys, kv_heads, head_dim], those of the call's documents
// and no others; log_sum: [heads, queries], in any strides.
struct VarlenKernel {
  AttentionResult (*forward)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const VarlenCall& call, double scale);
  AttentionGradients (*backward)(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, const AttentionResult& result, const VarlenCall& call,
                                 double scale);
};

// attend_spans() and its gradient by such a kernel. What lies in the order of the documents is not copied.
AttentionResult attend_by(const VarlenKernel& kernel, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const std::vector<AttentionSpan>& spans,
                          const AttentionFormula& formula);
AttentionGradients differentiate_by(const VarlenKernel& kernel, const at::Tensor& grad_out,
                                    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionResult& result, const std::vector<AttentionSpan>& spans,
                                    const AttentionFormula& formula);

}  // namespace tessera::ops::cuda
