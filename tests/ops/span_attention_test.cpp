// Attention over other tokens and with biases of distances, against formulas of LibTorch that autograd
// differentiates.
#include "tessera/ops/span_attention.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/core/error.h"

namespace tessera::ops {
namespace {

struct Case {
  const char* name;
  int64_t queries, keys, heads;
  std::vector<AttentionSpan> spans;
  bool is_causal = false;
  double scale = 1.0;
  AttentionDropout dropout = {};
};

// Returns the attention of every span as one product, and zeros for queries of none.
at::Tensor plain(const Case& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& bias) {
  at::Tensor out = at::zeros_like(q);
  for (const AttentionSpan& span : c.spans) {
    if (span.queries == 0 || span.keys == 0) continue;
    const auto rows = [](const at::Tensor& x, int64_t first, int64_t count) {
      return x.narrow(0, first, count).transpose(0, 1);
    };
    at::Tensor scores = at::matmul(rows(q, span.first_query, span.queries),
                                   rows(k, span.first_key, span.keys).transpose(1, 2)) *
                        c.scale;
    const at::Tensor distance = at::arange(span.keys, at::kLong).unsqueeze(0) -
                                at::arange(span.queries, at::kLong).unsqueeze(1) - span.ahead;
    if (bias.defined()) {
      const at::Tensor column = (distance + (bias.size(1) - 1) / 2).clamp(0, bias.size(1) - 1);
      scores = scores + bias.index_select(1, column.flatten()).view(scores.sizes());
    }
    if (c.is_causal) scores = scores.masked_fill(distance.gt(0), -INFINITY);
    at::Tensor weights = at::softmax(scores, 2);
    if (c.dropout.probability > 0) weights = weights * dropout_factors(c.dropout, span, at::kDouble);
    const at::Tensor made = at::matmul(weights, rows(v, span.first_key, span.keys)).transpose(0, 1);
    out = out.index_copy(0, at::arange(span.first_query, span.first_query + span.queries, at::kLong), made);
  }
  return out;
}

void expect_equal(Case c, int64_t reach) {
  SCOPED_TRACE(c.name);
  at::manual_seed(7);
  if (c.dropout.probability > 0)
    c.dropout.draws = at::randint(std::numeric_limits<int64_t>::max(), {c.queries, c.heads}, at::kLong);
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor bias =
      reach < 0 ? at::Tensor() : at::randn({c.heads, 2 * reach + 1}, options).requires_grad_();
  std::vector<at::Tensor> in = {at::randn({c.queries, c.heads, 5}, options).requires_grad_(),
                                at::randn({c.keys, c.heads, 5}, options).requires_grad_(),
                                at::randn({c.keys, c.heads, 5}, options).requires_grad_()};
  const AttentionFormula formula{.scale = c.scale, .is_causal = c.is_causal, .dropout = c.dropout};
  const at::Tensor got = bias.defined() ? biased_attention(in[0], in[1], in[2], c.spans, formula, bias)
                                        : span_attention(in[0], in[1], in[2], c.spans, formula);
  const at::Tensor want = plain(c, in[0], in[1], in[2], bias);
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-12);
  if (bias.defined()) in.push_back(bias);
  const at::Tensor grad = at::randn(want.sizes(), options);
  const auto of_got = torch::autograd::grad({got}, in, {grad}),
             of_want = torch::autograd::grad({want}, in, {grad});
  for (size_t i = 0; i < in.size(); ++i)
    EXPECT_LT((of_got[i] - of_want[i]).abs().max().item<double>(), 1e-11) << i;
  // The results without a graph are the same.
  const at::NoGradGuard no_grad;
  const at::Tensor again = bias.defined() ? biased_attention(in[0], in[1], in[2], c.spans, formula, bias)
                                          : span_attention(in[0], in[1], in[2], c.spans, formula);
  EXPECT_TRUE(at::equal(again, got));
}

TEST(SpanAttention, EqualsTheFormula) {
  const std::vector<AttentionSpan> across = {{0, 3, 0, 7, 0}, {3, 0, 7, 2, 0}, {3, 5, 9, 4, 0}};
  expect_equal({"across", 8, 13, 2, across}, -1);
  expect_equal({"scaled", 8, 13, 2, across, false, 0.3}, -1);
  expect_equal({"one query", 1, 4, 3, {{0, 1, 0, 4, 0}}}, -1);
  expect_equal({"dropout", 8, 13, 2, across, false, 0.3, {0.4}}, -1);
}

TEST(BiasedAttention, EqualsTheFormula) {
  const std::vector<AttentionSpan> documents = {{0, 6, 0, 6, 0}, {6, 1, 6, 1, 0}, {7, 9, 7, 9, 0}};
  expect_equal({"both sides", 16, 16, 3, documents}, 8);
  expect_equal({"causal", 16, 16, 3, documents, true, 0.5}, 11);
  // Tokens that follow others of a cache.
  expect_equal({"behind", 5, 13, 2, {{0, 2, 0, 6, 4}, {2, 3, 6, 7, 4}}, true}, 9);
  expect_equal({"dropout", 16, 16, 3, documents, true, 0.5, {0.4}}, 11);
  expect_equal({"a query that no span has", 4, 4, 2, {{1, 3, 0, 3, 0}}}, 3);
}

// More scores than a block has: the queries of a document take several.
TEST(BiasedAttention, GoesThroughALongDocumentInBlocks) {
  expect_equal({"long", 1700, 1700, 1, {{0, 1700, 0, 1700, 0}}}, 1699);
  expect_equal({"long and causal", 1700, 1700, 1, {{0, 1700, 0, 1700, 0}}, true}, 1699);
  expect_equal({"long with dropout", 1700, 1700, 1, {{0, 1700, 0, 1700, 0}}, false, 1.0, {0.1}}, 1699);
}

TEST(BiasedAttention, RefusesBiasesThatDoNotReach) {
  const at::Tensor x = at::zeros({4, 2, 3});
  EXPECT_THROW(biased_attention(x, x, x, {{0, 4, 0, 4, 0}}, {.is_causal = false}, at::zeros({2, 5})), Error);
  EXPECT_THROW(biased_attention(x, x, x, {{0, 4, 0, 4, 0}}, {.is_causal = false}, at::zeros({3, 7})), Error);
  EXPECT_THROW(biased_attention(x, x, x, {{0, 4, 0, 4, 0}}, {.window = 2}, at::zeros({2, 7})), Error);
  EXPECT_NO_THROW(biased_attention(x, x, x, {{0, 4, 0, 4, 0}}, {.is_causal = false}, at::zeros({2, 7})));
}

}  // namespace
}  // namespace tessera::ops
