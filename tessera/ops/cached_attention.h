// Attention of new tokens over a cache of keys and values that lies in pages.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention_formula.h"

namespace tessera::ops {

// Tokens of a page.
inline constexpr int64_t kCachePageTokens = 32;

// One sequence of a batch: its new tokens, and where all its tokens are kept.
struct CachedSequence {
  int64_t first = 0;   // its first new token in the batch
  int64_t added = 0;   // its new tokens
  int64_t length = 0;  // all its tokens, the new ones included
  // page t / kCachePageTokens holds token t; undefined where nothing sees its tokens any more. A page is a
  // dense tensor of `dtype` with the elements [layers, 2 (keys, values), kv_heads, head_dim *
  // kCachePageTokens]; keys lie transposed, [head_dim, kCachePageTokens].
  std::vector<at::Tensor> pages;
};

struct CachedBatch {
  int64_t num_kv_heads = 0, head_dim = 0;
  at::ScalarType dtype = at::kFloat;
  std::vector<CachedSequence> sequences;
};

// Elements of a page.
int64_t cache_page_elements(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim);

// Writes the batch's new keys and values, [new tokens, kv_heads, head_dim] each of batch.dtype, to their
// places.
void write_cache(const CachedBatch& batch, int64_t layer, const at::Tensor& k, const at::Tensor& v);

// Causal attention, each new token seeing its own sequence up to itself. q: [new tokens, heads, head_dim] of
// batch.dtype (float32, float64 or bfloat16, computed in float32), heads a multiple of kv_heads as in
// document_attention. The result is contiguous, like q, without gradient; that of a token depends on
// its own sequence alone, to the last bit, for any batch and number of threads.
at::Tensor cached_attention(const at::Tensor& q, const CachedBatch& batch, int64_t layer,
                            const AttentionFormula& formula);

}  // namespace tessera::ops
