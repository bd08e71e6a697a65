// Attention over packed documents, and over parts of them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention_formula.h"

namespace tessera::ops {

// Attention inside every document. Pairs of tokens that do not see each other cost no work, but for those in
// one tile with pairs that do: the cost is linear in a window, and in the documents.
//
// q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim] with heads a multiple of kv_heads (query
// head h reads key head h / (heads / kv_heads)); float32, float64 or bfloat16. document_starts: [documents +
// 1], first 0, last tokens, not decreasing. The result is contiguous [tokens, heads, head_dim]. Saves q, k,
// v, the result and one number a token and head.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, const AttentionFormula& formula);

struct AttentionResult {
  at::Tensor out;      // like q
  at::Tensor log_sum;  // [queries, heads, 1], the logarithm of the softmax's denominator; float32 or float64
};
struct AttentionGradients {
  at::Tensor q, k, v;
};

// Attention of queries over keys elsewhere in their documents, without autograd. Spans must not share queries
// and must not share keys. q: [queries, heads, head_dim]; k, v: [keys, kv_heads, head_dim], as above. Where a
// query sees no key, out is 0 and log_sum minus infinity.
AttentionResult attend_spans(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);

// Whether there is any pair for attend_spans() to work on.
bool some_query_sees(const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);

// The result over no keys, for add_attention(): out in compute_type(q).
AttentionResult attention_of_nothing(const at::Tensor& q);
// Makes `sum`, in place, the result over its keys and those of `part` together, which are others.
void add_attention(const AttentionResult& sum, const AttentionResult& part);

// What these keys' part of the softmax adds to the gradients; `result` is that over all keys that the queries
// see, of these spans and of others.
AttentionGradients attend_spans_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionResult& result,
                                         const std::vector<AttentionSpan>& spans,
                                         const AttentionFormula& formula);

}  // namespace tessera::ops
