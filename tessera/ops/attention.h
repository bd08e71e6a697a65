// Attention over packed documents, and over parts of them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention_formula.h"

namespace tessera::ops {

// Attention inside every document. Pairs of tokens that do not see each other cost no work, except for those
// in one tile with pairs that do: the cost is linear in a window, and in the number of documents.
//
// q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim] with heads a multiple of kv_heads (query
// head h reads key head h / (heads / kv_heads)); float32, float64 or bfloat16. document_starts: [documents +
// 1], first 0, last tokens, not decreasing. The result is contiguous [tokens, heads, head_dim]. The op saves
// q, k, v, the result and one number per token and head.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, const AttentionFormula& formula);

struct AttentionResult {
  at::Tensor out;      // of q's shape and type
  at::Tensor log_sum;  // [queries, heads, 1], the logarithm of the softmax's denominator; float32 or float64
};
struct AttentionGradients {
  at::Tensor q, k, v;
};

// Returns the attention of queries over keys that may lie elsewhere in their documents, without autograd.
// Spans must not share queries and must not share keys. q: [queries, heads, head_dim]; k, v: [keys, kv_heads,
// head_dim], as for document_attention(). A query that sees no key has an `out` of 0 and a `log_sum` of minus
// infinity. The formula's sinks are left to add_sinks(), which follows once, when all keys have been seen.
AttentionResult attend_spans(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);

// Tells whether any query of the spans sees a key, so that attend_spans() has work to do.
bool some_query_sees(const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);

// Returns the result of attention over no keys, as a start for add_attention(): out of zeros in
// compute_type(q), log_sum of minus infinity.
AttentionResult attention_of_nothing(const at::Tensor& q);
// Merges `part` into `sum`, in place: `sum` becomes the result over the keys of both. The two must be over
// different keys.
void add_attention(const AttentionResult& sum, const AttentionResult& part);

// Adds the keys of the formula's sinks to a result, in place; does nothing if there are none.
void add_sinks(const AttentionResult& result, const AttentionFormula& formula);
// Returns the gradient of the sinks, [heads] of their type. `result` is that after add_sinks().
at::Tensor sinks_gradient(const at::Tensor& grad_out, const AttentionResult& result, const at::Tensor& sinks);

// Returns what the keys of these spans add to the gradients. `result` is that over all keys that the queries
// see, those of these spans, of others, and sinks, so that the gradients over all sets of keys add up to the
// whole.
AttentionGradients attend_spans_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionResult& result,
                                         const std::vector<AttentionSpan>& spans,
                                         const AttentionFormula& formula);

}  // namespace tessera::ops
