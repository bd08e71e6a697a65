// The layout of a page of a cache, in numbers of the model's type or in signed bytes.
#pragma once

#include <cstdint>
#include <limits>

#include <ATen/core/Tensor.h>

#include "tessera/ops/cached_attention.h"
#include "tessera/ops/kernels/coded_page.h"

namespace tessera::ops {

// The type of the pages of a cache in 8 bits. Such a page has, for each layer, the codes of keys and values,
// which lie as the numbers do in other pages, and behind them a float32 scale for each token of each head, [2
// (keys, values), kv_heads, kCachePageTokens].
inline constexpr at::ScalarType kCodedCache = at::kChar;

// Returns the bytes of a page of such a cache.
inline int64_t coded_page_bytes(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim) {
  const auto scale = static_cast<int64_t>(sizeof(float));
  return cache_page_elements(num_layers, num_kv_heads, head_dim) +
         num_layers * 2 * num_kv_heads * kCachePageTokens * scale;
}

// One head of one layer in pages of T.
template <class T>
struct PageHead {
  T *keys, *values;  // [head_dim, kCachePageTokens], [kCachePageTokens, head_dim]
};
struct CodedPageHead : PageHead<int8_t> {
  float *key_scales, *value_scales;  // [kCachePageTokens]
};

struct PageShape {
  int64_t kv_heads = 0, head_dim = 0;

  // Number of elements of one head's keys, or values.
  int64_t block() const { return head_dim * kCachePageTokens; }

  template <class T>
  PageHead<T> head(char* page, int64_t layer, int64_t kv_head) const {
    T* const keys = reinterpret_cast<T*>(page) + (2 * layer * kv_heads + kv_head) * block();
    return {keys, keys + kv_heads * block()};
  }
  CodedPageHead coded_head(char* page, int64_t layer, int64_t kv_head) const {
    char* const codes = page + coded_page_bytes(layer, kv_heads, head_dim);
    const auto both = head<int8_t>(codes, 0, kv_head);
    float* const scales =
        reinterpret_cast<float*>(codes + 2 * kv_heads * block()) + kv_head * kCachePageTokens;
    return {{both.keys, both.values}, scales, scales + kv_heads * kCachePageTokens};
  }
};

}  // namespace tessera::ops
