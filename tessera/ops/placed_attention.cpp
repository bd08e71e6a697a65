#include "tessera/ops/placed_attention.h"

#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

// Returns the keys, [pages, kv_heads, head_dim, kCachePageTokens], and the values, [pages, kv_heads,
// kCachePageTokens, head_dim], of a layer.
std::pair<at::Tensor, at::Tensor> layer_of(const PlacedTokens& tokens, int64_t layer) {
  const int64_t width = tokens.head_dim * kCachePageTokens;
  const at::Tensor both =
      tokens.pages.view({tokens.pages.size(0), -1, 2, tokens.num_kv_heads, width}).select(1, layer);
  return {both.select(1, 0).unflatten(-1, {tokens.head_dim, kCachePageTokens}),
          both.select(1, 1).unflatten(-1, {kCachePageTokens, tokens.head_dim})};
}

}  // namespace

at::Tensor plain::attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& lengths, const AttentionFormula& formula) {
  const at::ScalarType exact = compute_type(q.scalar_type());
  const int64_t rows = q.size(0), kv_heads = k.size(2), head_dim = q.size(2);
  const at::Tensor places = at::arange(k.size(1), lengths.options()), ends = lengths.unsqueeze(1);
  at::Tensor seen = places.lt(ends);
  if (formula.window > 0) seen = seen.logical_and(places.ge(ends - formula.window));
  // [rows, kv_heads, query heads of each, head_dim]
  const at::Tensor queries = q.view({rows, kv_heads, -1, head_dim}).to(exact);
  at::Tensor scores = at::matmul(queries, k.permute({0, 2, 3, 1}).to(exact)) * formula.scale;
  if (formula.soft_cap > 0) scores = formula.soft_cap * at::tanh(scores / formula.soft_cap);
  scores = scores.masked_fill(seen.logical_not().unsqueeze(1).unsqueeze(1),
                              -std::numeric_limits<double>::infinity());
  // Values of tokens that are not seen are set to zeros: NaN times a weight of zero would still be NaN.
  const at::Tensor values =
      v.to(exact).masked_fill(seen.logical_not().unsqueeze(2).unsqueeze(2), 0.0).transpose(1, 2);
  if (formula.sinks.defined()) {
    const at::Tensor sinks = formula.sinks.to(exact).view({1, kv_heads, -1, 1});
    scores = at::cat({scores, sinks.expand({rows, kv_heads, scores.size(2), 1})}, -1);
  }
  const at::Tensor shares = at::softmax(scores, -1).narrow(-1, 0, k.size(1));
  return at::matmul(shares, values).to(q.scalar_type()).view(q.sizes());
}

at::Tensor attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& lengths, const AttentionFormula& formula) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_operands("attend_rows", {&q, &k, &v});
  formula.check();
  TESSERA_ASSERT(q.dim() == 3 && k.dim() == 4 && k.sizes() == v.sizes() && k.size(0) == q.size(0) &&
                     k.size(3) == q.size(2) && k.size(2) > 0 && q.size(1) % k.size(2) == 0 &&
                     lengths.numel() == q.size(0) && formula.is_causal,
                 "attend_rows: shapes, or attention that looks ahead");
  return leaves(q).attend_rows(q, k, v, lengths, formula);
}

at::Tensor placed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const PlacedTokens& tokens, int64_t layer, const AttentionFormula& formula) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const int64_t rows = tokens.table.size(0), length = tokens.table.size(1) * kCachePageTokens;
  TESSERA_ASSERT(q.size(0) == rows && k.size(0) == rows && k.size(1) == tokens.num_kv_heads &&
                     v.sizes() == k.sizes() && q.scalar_type() == tokens.pages.scalar_type(),
                 "placed_attention: rows, heads or types");
  auto [keys, values] = layer_of(tokens, layer);
  // Places of the new tokens among the table's tokens.
  const at::Tensor places = tokens.positions - tokens.firsts;
  const at::Tensor column = places.floor_divide(kCachePageTokens).unsqueeze(1);
  const at::Tensor page = tokens.table.gather(1, column).squeeze(1),
                   slot = places.remainder(kCachePageTokens);
  // Indexed dims come first in the elements that are written, so head and element stay in their order: [rows,
  // kv_heads, head_dim] on both sides.
  using Places = c10::List<std::optional<at::Tensor>>;
  keys.index_put_(Places({page, std::nullopt, std::nullopt, slot}), k);
  values.index_put_(Places({page, std::nullopt, slot}), v);
  const at::Tensor all = tokens.table.reshape({-1});
  const auto rows_of = [&](const at::Tensor& paged) {
    return paged.reshape({rows, length, tokens.num_kv_heads, tokens.head_dim});
  };
  return attend_rows(q.contiguous(), rows_of(keys.index_select(0, all).permute({0, 3, 1, 2})),
                     rows_of(values.index_select(0, all).transpose(1, 2)), places + 1, formula);
}

}  // namespace tessera::ops
