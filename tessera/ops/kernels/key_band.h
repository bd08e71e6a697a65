// The keys that queries see. No LibTorch here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace tessera::ops::kernels {

// A bound that bounds nothing: far beyond every sequence, and far from overflow.
inline constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max() / 8;

// The indices [begin, end); empty unless begin < end.
struct IndexRange {
  int64_t begin, end;
  bool is_empty() const { return begin >= end; }
  int64_t size() const { return std::max<int64_t>(end - begin, 0); }
};

// The keys that queries see: query i sees those of the keys i + first .. i + last that lie in 0 .. keys - 1.
// first <= last.
struct KeyBand {
  int64_t first, last, keys;

  // Returns the same band with queries counted from `query` and keys counted from `key` on.
  KeyBand from(int64_t query, int64_t key) const {
    return {first + query - key, last + query - key, keys - key};
  }
  // Returns the band of the first `count` keys.
  KeyBand of_first(int64_t count) const { return {first, last, std::min(keys, count)}; }

  // Returns the keys that some of the queries 0 .. queries - 1 see.
  IndexRange keys_seen(int64_t queries) const {
    return {std::max<int64_t>(0, first), std::min(keys, queries + last)};
  }
  // Returns those of the queries 0 .. queries - 1 that see some key.
  IndexRange queries_that_see(int64_t queries) const {
    if (keys <= 0) return {0, 0};
    return {std::max<int64_t>(0, -last), std::min(queries, keys - first)};
  }
  // Tells whether each of the queries 0 .. size - 1 sees each of the keys 0 .. size - 1.
  bool is_open(int64_t size) const { return last >= size - 1 && first <= 1 - size && keys >= size; }
};

}  // namespace tessera::ops::kernels
