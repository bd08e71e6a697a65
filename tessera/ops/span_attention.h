// Attention of queries over keys of other tokens, and with a bias for each distance, under autograd.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention_formula.h"

namespace tessera::ops {

// Attends from the queries of each span to its keys. q: [queries, heads, head_dim]; k, v: [keys, kv_heads,
// head_dim], as for document_attention(); spans share neither queries nor keys. The formula has no sinks. The
// result is contiguous, of q's shape and type; a query that sees no key gets zeros. Saves q, k, v, the result
// and one number per query and head.
at::Tensor span_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);

// Does the same with biases: the score of a key d positions behind its query (before it, if d is negative)
// becomes scale q k^T + bias[head][reach + d]. bias: [heads, 2 reach + 1], where no key that a query sees is
// farther away than `reach`. kv_heads is heads, no span begins before its keys, and the formula has neither a
// window nor a soft cap.
//
// It is made of LibTorch's operations, on any device, for one block of queries of a span at a time, in
// float32 (float64 for float64). Saves q, k, v and the biases alone: the backward makes the scores again.
// Memory for scores is bounded by the keys of one span times a few queries, for all heads.
at::Tensor biased_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<AttentionSpan>& spans, const AttentionFormula& formula,
                            const at::Tensor& bias);

}  // namespace tessera::ops
