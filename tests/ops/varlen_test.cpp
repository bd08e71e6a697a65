// Tests the calls that flash attention gets, and that together they give the attention that is asked for.
#include "tessera/ops/cuda/varlen.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/ops/cuda/flash_attention.h"
#include "tessera/ops/plain.h"

#include "tests/testing/gradcheck.h"
#include "tests/testing/random.h"

namespace tessera::ops::cuda {
namespace {

using namespace checks;

using tessera::testing::Random;
using Starts = std::vector<int32_t>;

std::vector<VarlenCall> calls_of(const std::vector<int64_t>& starts, const AttentionFormula& formula) {
  return varlen_calls(spans_of_documents(starts), formula);
}

TEST(VarlenCall, DocumentsAreOneCall) {
  struct Case {
    AttentionFormula formula;
    int64_t left, right;
  };
  for (const Case& c : std::vector<Case>{{{1.0}, -1, 0},
                                         {{1.0, false}, -1, -1},
                                         {{1.0, true, 3}, 2, 0},
                                         {{1.0, false, 3}, 2, 2},
                                         {{1.0, true, 1}, 0, 0},
                                         {{1.0, true, int64_t{1} << 50}, 2147483647, 0}}) {
    SCOPED_TRACE(::testing::Message() << c.formula.is_causal << ' ' << c.formula.window);
    // The documents are empty, of one token, shorter than the window, and longer.
    const auto calls = calls_of({0, 1, 3, 3, 13}, c.formula);
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(calls[0].left, c.left);
    EXPECT_EQ(calls[0].right, c.right);
    EXPECT_EQ(calls[0].is_causal(), c.right == 0);
    EXPECT_EQ(calls[0].starts(&SeenSpan::queries), (Starts{0, 1, 3, 13}));
    EXPECT_EQ(calls[0].starts(&SeenSpan::keys), (Starts{0, 1, 3, 13}));
    EXPECT_EQ(calls[0].longest(&SeenSpan::queries), 10);
  }
  // The call must not be a batch of single queries, which another kernel would run.
  EXPECT_EQ(calls_of({0, 1, 2}, {1.0}).at(0).longest(&SeenSpan::queries), 2);
  EXPECT_TRUE(calls_of({0, 0}, {1.0}).empty());
}

TEST(VarlenCall, NewTokensOfSeveralSequencesAreOneCall) {
  // The sequences have one new token, five new tokens, and a whole prompt.
  const auto calls = varlen_calls({{0, 1, 0, 6, 5}, {1, 5, 6, 35, 30}, {6, 40, 41, 40, 0}}, {1.0});
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].right, 0);
  EXPECT_EQ(calls[0].starts(&SeenSpan::queries), (Starts{0, 1, 6, 46}));
  EXPECT_EQ(calls[0].starts(&SeenSpan::keys), (Starts{0, 6, 41, 81}));
}

TEST(VarlenCall, EarlierPartsOfDocumentsAreOneCallWithoutBounds) {
  // A ring has such spans: the queries lie far behind keys that end before them.
  const auto calls = varlen_calls({{0, 4, 0, 4, 8}, {4, 3, 4, 5, 100}}, {1.0});
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].left, -1);
  EXPECT_EQ(calls[0].right, -1);
}

TEST(VarlenCall, WhatNobodySeesIsInNone) {
  // The first two queries come before all keys; then the queries end before the keys.
  const auto calls = varlen_calls({{0, 5, 0, 9, -2}}, {1.0});
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].right, 0);
  EXPECT_EQ(calls[0].spans[0].first_query, 2);
  EXPECT_EQ(calls[0].starts(&SeenSpan::keys), (Starts{0, 3}));
}

TEST(FlashAttention, SaysWhatItComputes) {
  const AttentionFormula causal{1.0}, window{1.0, true, 5}, capped{1.0, true, 0, 30.0};
  for (const int64_t head_dim : {8, 64, 96, 128, 256}) {
    EXPECT_TRUE(flash_computes(at::kBFloat16, head_dim, causal)) << head_dim;
    EXPECT_TRUE(flash_computes(at::kHalf, head_dim, window)) << head_dim;
    EXPECT_FALSE(flash_computes(at::kBFloat16, head_dim, capped)) << head_dim;
    EXPECT_FALSE(flash_computes(at::kFloat, head_dim, causal)) << head_dim;
    EXPECT_FALSE(flash_computes(at::kDouble, head_dim, causal)) << head_dim;
  }
  EXPECT_FALSE(flash_computes(at::kBFloat16, 100, causal));
  EXPECT_FALSE(flash_computes(at::kBFloat16, 264, causal));
}

// Computes what VarlenKernel describes, from that description alone.
AttentionResult by_definition(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const VarlenCall& call, double scale) {
  const Starts queries = call.starts(&SeenSpan::queries), keys = call.starts(&SeenSpan::keys);
  EXPECT_EQ(queries.back(), q.size(0));
  EXPECT_EQ(keys.back(), k.size(0));
  std::vector<at::Tensor> outs, log_sums;
  for (size_t i = 0; i + 1 < queries.size(); ++i) {
    const int64_t rows = queries[i + 1] - queries[i], count = keys[i + 1] - keys[i], d = count - rows;
    EXPECT_LE(rows, call.longest(&SeenSpan::queries));
    EXPECT_LE(count, call.longest(&SeenSpan::keys));
    const at::Tensor from_end = at::arange(count) - at::arange(rows).view({-1, 1}) - d;
    at::Tensor hidden = at::zeros({rows, count}, at::kBool);
    if (call.left >= 0) hidden = hidden.logical_or(from_end.lt(-call.left));
    if (call.right >= 0) hidden = hidden.logical_or(from_end.gt(call.right));
    const auto heads = [&](const at::Tensor& x) {
      return x.narrow(0, keys[i], count).repeat_interleave(q.size(1) / k.size(1), 1).transpose(0, 1);
    };
    const at::Tensor scores =
        (at::matmul(q.narrow(0, queries[i], rows).transpose(0, 1), heads(k).transpose(1, 2)) * scale)
            .masked_fill(hidden, -std::numeric_limits<double>::infinity());
    outs.push_back(at::matmul(at::softmax(scores, -1), heads(v)).transpose(0, 1));
    log_sums.push_back(at::logsumexp(scores, -1));
  }
  return {at::cat(outs), at::cat(log_sums, 1)};
}

// Returns the gradients of a share of a softmax whose denominators are given, as flash attention computes
// them.
AttentionGradients gradients_by_definition(const at::Tensor& grad_out, const at::Tensor& q_in,
                                           const at::Tensor& k_in, const at::Tensor& v_in,
                                           const AttentionResult& result, const VarlenCall& call,
                                           double scale) {
  const at::AutoGradMode with_grad(true);
  const at::Tensor q = trained(q_in), k = trained(k_in), v = trained(v_in);
  const AttentionResult part = by_definition(q, k, v, call, scale);
  // The output is out = share * part.out with share = exp(part.log_sum - log_sum), and the denominators
  // depend on the scores too. The gradient of sum(grad_out * out) is therefore that of share * (grad_out .
  // part.out) - share * delta, in which delta = grad_out . out is constant.
  const at::Tensor share = at::exp(part.log_sum - result.log_sum).t();
  const at::Tensor delta = (grad_out * result.out).sum(-1);
  const at::Tensor loss = (share * ((grad_out * part.out).sum(-1) - delta)).sum();
  const auto made = torch::autograd::grad({loss}, {q, k, v});
  return {made[0], made[1], made[2]};
}

constexpr VarlenKernel kByDefinition{by_definition, gradients_by_definition};

TEST(AttendBy, RandomSpansEqualThePlainFormula) {
  Random random;
  for (int round = 0; round < 12; ++round) {
    std::vector<AttentionSpan> spans;
    int64_t queries = random.in(0, 3), keys = random.in(0, 3);
    for (int64_t i = random.in(0, 4); i > 0; --i) {
      const int64_t longest = 20;
      AttentionSpan span{queries, random.in(0, longest), keys, random.in(0, longest),
                         random.in(-longest, 2 * longest)};
      // The spans are whole documents, halves of a ring's documents, or random.
      if (round % 3 == 0) span.keys = span.queries, span.ahead = 0;
      if (round % 3 == 1) span.ahead = random.in(0, 1) * 3 * longest;
      queries += span.queries + (round % 2 == 0 ? 0 : random.in(0, 2));
      keys += span.keys + (round % 2 == 0 ? 0 : random.in(0, 2));
      spans.push_back(span);
    }
    if (round % 4 == 3) std::reverse(spans.begin(), spans.end());
    const int64_t kv_heads = random.in(1, 2), heads = kv_heads * random.in(1, 3), head_dim = 4;
    const at::Tensor q = random_tensor({queries, heads, head_dim}, 1),
                     k = random_tensor({keys, kv_heads, head_dim}, 2),
                     v = random_tensor({keys, kv_heads, head_dim}, 3), grad = random_tensor(q.sizes(), 4);
    for (const bool is_causal : {true, false}) {
      for (const int64_t window : {int64_t{0}, random.in(1, 30)}) {
        const AttentionFormula formula{.scale = 0.4, .is_causal = is_causal, .window = window};
        SCOPED_TRACE(::testing::Message() << round << ' ' << is_causal << ' ' << window);
        const AttentionResult want = plain::attend_spans(q, k, v, spans, formula),
                              got = attend_by(kByDefinition, q, k, v, spans, formula);
        expect_near(got.out, want.out, 1e-12, "out");
        ASSERT_EQ(got.log_sum.sizes(), want.log_sum.sizes());
        EXPECT_TRUE(at::allclose(got.log_sum, want.log_sum, 1e-12, 1e-12));
        const auto wanted = plain::attend_spans_backward(grad, q, k, v, want, spans, formula),
                   own = differentiate_by(kByDefinition, grad, q, k, v, got, spans, formula);
        expect_near(own.q, wanted.q, 1e-11, "q");
        expect_near(own.k, wanted.k, 1e-11, "k");
        expect_near(own.v, wanted.v, 1e-11, "v");
        // The result is one part of a larger softmax.
        const AttentionResult larger{want.out * 0.5, want.log_sum + 0.7};
        const auto wanted_share = plain::attend_spans_backward(grad, q, k, v, larger, spans, formula),
                   own_share = differentiate_by(kByDefinition, grad, q, k, v, larger, spans, formula);
        expect_near(own_share.q, wanted_share.q, 1e-11, "q of a share");
        expect_near(own_share.k, wanted_share.k, 1e-11, "k of a share");
        expect_near(own_share.v, wanted_share.v, 1e-11, "v of a share");
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::ops::cuda
