// Causal attention over packed documents.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// softmax(scale * q k^T) v with a causal mask inside every document. Pairs of tokens from different documents
// cost no work.
//
// q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim] with heads a multiple of kv_heads (query
// head h reads key head h / (heads / kv_heads)); float32, float64 or bfloat16. document_starts: [documents +
// 1], first 0, last tokens, not decreasing. The result is contiguous [tokens, heads, head_dim]. Saves q, k,
// v, the result and one number a token and head.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, double scale);

}  // namespace tessera::ops
