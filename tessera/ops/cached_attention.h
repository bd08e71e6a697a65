// Attention of new tokens over a cache of keys and values that lies in pages.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention_formula.h"

namespace tessera::ops {

// Tokens that one page holds.
inline constexpr int64_t kCachePageTokens = 32;

// One sequence of a batch: its new tokens, and where all its tokens are kept.
struct CachedSequence {
  int64_t first = 0;   // row of its first new token among the batch's new tokens
  int64_t added = 0;   // number of its new tokens
  int64_t length = 0;  // number of all its tokens, the new ones included
  // Page t / kCachePageTokens holds token t; a page whose tokens nothing sees any more may be undefined. A
  // page is a dense tensor of the batch's `dtype` with the elements [layers, 2 (keys, values), kv_heads,
  // head_dim * kCachePageTokens]; the keys of a head lie transposed, [head_dim, kCachePageTokens], its values
  // as [kCachePageTokens, head_dim].
  std::vector<at::Tensor> pages;
};

struct CachedBatch {
  int64_t num_kv_heads = 0, head_dim = 0;
  at::ScalarType dtype = at::kFloat;  // kCodedCache (cache_pages.h) for any type of tokens
  std::vector<CachedSequence> sequences;
};

// Returns the number of elements of a page.
int64_t cache_page_elements(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim);

// Writes the batch's new keys and values, each [new tokens, kv_heads, head_dim] of batch.dtype, into their
// pages.
void write_cache(const CachedBatch& batch, int64_t layer, const at::Tensor& k, const at::Tensor& v);

// Causal attention in which each new token sees its own sequence up to itself. q: [new tokens, heads,
// head_dim] of batch.dtype (float32, float64, or bfloat16, which is computed in float32), heads a multiple of
// kv_heads as in document_attention. The result is contiguous, of q's shape and type, without gradient; a
// token's result depends on its own sequence alone, to the last bit, for any batch and number of threads.
at::Tensor cached_attention(const at::Tensor& q, const CachedBatch& batch, int64_t layer,
                            const AttentionFormula& formula);

}  // namespace tessera::ops
