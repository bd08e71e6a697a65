// Attention of one new token of each of several sequences over a cache, where only the device knows which
// page holds what: the host passes shapes alone, so that a recording of it (device/device_graph.h) also holds
// for the tokens to come.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/ops/attention_formula.h"
#include "tessera/ops/cached_attention.h"

namespace tessera::ops {

// New tokens, one per row, and where the cache keeps their sequences. All tensors lie on one device; the last
// three are int64. A row without a sequence has position 0 and a page that no sequence owns; such a page also
// fills the ends of shorter rows of the table.
struct PlacedTokens {
  int64_t num_kv_heads = 0, head_dim = 0;
  at::Tensor pages;      // [pages, cache_page_elements()], dense: pages as in CachedSequence
  at::Tensor positions;  // [rows]: positions of the new tokens in their sequences
  at::Tensor firsts;     // [rows]: position of the first token of each row's first page
  at::Tensor table;      // [rows, columns]: numbers of each row's pages, in their order
};

// Writes the new keys and values, [rows, kv_heads, head_dim] of the pages' type, to their places in a layer,
// and returns the causal attention of q, [rows, heads, head_dim]: contiguous, of q's shape and type, without
// gradient. Each row of the table must reach from the first token that the formula lets it see to its
// position; the contents of its other tokens do not matter, NaN included.
at::Tensor placed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const PlacedTokens& tokens, int64_t layer, const AttentionFormula& formula);

// Returns the attention part of it, which is a leaf. q: [rows, heads, head_dim]; k, v: [rows, length,
// kv_heads, head_dim]. Row r's query is at the last of the first lengths[r] tokens (int64, at least 1), and
// sees those of them that the formula lets it see.
at::Tensor attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& lengths, const AttentionFormula& formula);

}  // namespace tessera::ops
