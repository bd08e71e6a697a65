// The host's attention of sequences that get many new tokens at once, over pages.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/cached_attention.h"

namespace tessera::ops {

// Sequences with at least so many new tokens fill the blocks of queries and keys in which documents attend.
// For fewer it is faster to go through the pages for each query.
inline constexpr int64_t kManyNewTokens = 24;

// Writes the attention of the new tokens of those sequences of the batch that have many of them to their rows
// of `out`, as cached_attention() does. memory: the addresses of all pages of every sequence of the batch,
// null for a page that nothing sees.
void attend_in_blocks(const at::Tensor& q, const CachedBatch& batch,
                      const std::vector<std::vector<char*>>& memory, int64_t layer,
                      const AttentionFormula& formula, const at::Tensor& out);

}  // namespace tessera::ops
