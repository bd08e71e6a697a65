// Attention of one new token of each of some sequences over a cache, of which the device knows what lies
// where: the host names shapes alone, so that a recording of it (core/device_graph.h) holds for the tokens to
// come.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention_formula.h"
#include "tessera/ops/cached_attention.h"

namespace tessera::ops {

// All tensors lie on one device, the last three int64. A row without a sequence has position 0, and, like the
// ends of shorter rows, a page that no sequence owns.
struct PlacedTokens {
  int64_t num_kv_heads = 0, head_dim = 0;
  at::Tensor pages;      // [pages, cache_page_elements()], dense: as those of CachedSequence
  at::Tensor positions;  // [rows]: of the new tokens in their sequences
  at::Tensor firsts;     // [rows]: the position of the first token of a row's first page
  at::Tensor table;      // [rows, columns]: the pages of each row, by their numbers
};

// Writes the new keys and values, [rows, kv_heads, head_dim] of the pages' type, to their places in a layer,
// and attends causally from q, [rows, heads, head_dim]: contiguous, like q, without gradient. The table must
// reach from the first token that a row's formula sees to its position; what it has beside that does not
// matter, NaN included.
at::Tensor placed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const PlacedTokens& tokens, int64_t layer, const AttentionFormula& formula);

// The attention in it, a leaf: k, v: [rows, length, kv_heads, head_dim], of which the query of a row is the
// last of the first lengths[row] (int64, at least 1) tokens and sees, of those, what the formula says.
at::Tensor attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& lengths, const AttentionFormula& formula);

}  // namespace tessera::ops
