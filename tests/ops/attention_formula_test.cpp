// Tests windows, both directions, soft caps and dropout, over documents and over spans of them, against the
// definition of attention.
#include "tessera/ops/attention_formula.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/plain.h"

#include "tests/testing/gradcheck.h"
#include "tests/testing/random.h"

namespace tessera::ops {
namespace {

using namespace checks;

using tessera::testing::Random;

std::string shown(const AttentionFormula& f) {
  return std::string(f.is_causal ? "causal" : "both ways") + ", window " + std::to_string(f.window) +
         ", soft cap " + std::to_string(f.soft_cap) + ", dropout " + std::to_string(f.dropout.probability);
}

// Returns which keys each query sees, as bools [queries, keys].
at::Tensor pairs_that_see(const std::vector<AttentionSpan>& spans, int64_t queries, int64_t keys,
                          const AttentionFormula& formula) {
  at::Tensor seen = at::zeros({queries, keys}, at::kBool);
  for (const AttentionSpan& span : spans) {
    const at::Tensor back = span.ahead + at::arange(span.queries).view({-1, 1}) - at::arange(span.keys);
    at::Tensor sees = back == back;
    if (formula.is_causal) sees = sees & (back >= 0);
    if (formula.window > 0) sees = sees & (back.abs() < formula.window);
    seen.narrow(0, span.first_query, span.queries).narrow(1, span.first_key, span.keys).copy_(sees);
  }
  return seen;
}

// Gives the formula's dropout the draws of these queries.
AttentionFormula drawn(AttentionFormula formula, const at::Tensor& q) {
  if (formula.dropout.probability == 0.0) return formula;
  const CounterRng rng(17, 4);
  at::Tensor& draws = formula.dropout.draws = at::empty({q.size(0), q.size(1)}, at::kLong);
  auto* const numbers = draws.data_ptr<int64_t>();
  for (int64_t i = 0; i < draws.numel(); ++i) numbers[i] = static_cast<int64_t>(rng.bits(i));
  return formula;
}

// Returns by what dropout multiplies the pairs' probabilities, [heads, queries, keys].
at::Tensor pair_factors(const std::vector<AttentionSpan>& spans, const AttentionDropout& dropout,
                        int64_t keys) {
  const int64_t heads = dropout.draws.size(1);
  at::Tensor factors = at::ones({heads, dropout.draws.size(0), keys}, at::kDouble);
  const double kept = 1.0 / (1.0 - dropout.probability), bound = dropout.probability * 0x1.0p32;
  const auto* const draws = dropout.draws.data_ptr<int64_t>();
  for (const AttentionSpan& span : spans) {
    for (int64_t row = 0; row < heads * span.queries; ++row) {
      const int64_t head = row % heads, query = row / heads, token = span.first_query + query;
      const auto draw = static_cast<uint64_t>(draws[token * heads + head]);
      auto* const to = factors.data_ptr<double>() + (head * factors.size(1) + token) * keys + span.first_key;
      for (int64_t key = 0; key < span.keys; ++key) {
        const uint32_t word =
            kernels::pair_word(static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32),
                               static_cast<uint32_t>(span.ahead + query - key));
        to[key] = word < bound ? 0.0 : kept;
      }
    }
  }
  return factors;
}

// Returns attention by its definition, with the logarithm of the softmax's denominator.
AttentionResult by_definition(const Inputs& in, const std::vector<AttentionSpan>& spans,
                              const AttentionFormula& given) {
  const AttentionFormula formula = drawn(given, in[0]);
  const at::Tensor seen = pairs_that_see(spans, in[0].size(0), in[1].size(0), formula);
  const int64_t group = in[0].size(1) / in[1].size(1);
  const auto heads = [](const at::Tensor& x) { return x.transpose(0, 1); };
  at::Tensor scores =
      at::matmul(heads(in[0]), heads(in[1].repeat_interleave(group, 1)).transpose(1, 2)) * formula.scale;
  if (formula.soft_cap > 0) scores = formula.soft_cap * at::tanh(scores / formula.soft_cap);
  scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor log_sum = at::logsumexp(scores, {2}, true);
  const at::Tensor sees = seen.any(1).view({1, -1, 1});
  at::Tensor weights = at::where(sees, at::exp(scores - at::where(sees, log_sum, 0.0)), 0.0);
  if (formula.dropout.probability > 0)
    weights = weights * pair_factors(spans, formula.dropout, in[1].size(0));
  return {heads(at::matmul(weights, heads(in[2].repeat_interleave(group, 1)))), heads(log_sum)};
}

Op fused_formula(const std::vector<int64_t>& starts, const AttentionFormula& formula) {
  return [=](const Inputs& in) {
    return document_attention(in[0], in[1], in[2], starts, drawn(formula, in[0]));
  };
}
Op definition(const std::vector<int64_t>& starts, const AttentionFormula& formula) {
  return [=](const Inputs& in) { return by_definition(in, spans_of_documents(starts), formula).out; };
}

Inputs make_formula_inputs(int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads, int64_t head_dim,
                           uint64_t seed) {
  return {trained(random_tensor({queries, heads, head_dim}, seed)),
          trained(random_tensor({keys, kv_heads, head_dim}, seed + 1)),
          trained(random_tensor({keys, kv_heads, head_dim}, seed + 2))};
}

// Returns every kind of formula; each kind with a window has one of `window` tokens.
std::vector<AttentionFormula> formulas(int64_t window) {
  return {{0.4},
          {0.4, false},
          {0.4, true, window},
          {0.4, false, window},
          {0.4, true, 0, 1.5},
          {0.4, false, window, 0.7},
          {.scale = 0.4, .is_causal = false, .window = window, .soft_cap = 0.7, .dropout = {0.3}}};
}

// The formula's sinks are the fourth input.
Op fused_with_sinks(const std::vector<int64_t>& starts, AttentionFormula formula) {
  return [=](const Inputs& in) mutable {
    formula.sinks = in[3];
    return document_attention(in[0], in[1], in[2], starts, drawn(formula, in[0]));
  };
}

// A softmax with one more column, which no value belongs to.
Op sinks_by_definition(const std::vector<int64_t>& starts, const AttentionFormula& formula) {
  return [=](const Inputs& in) {
    const AttentionResult without = by_definition(in, spans_of_documents(starts), formula);
    const at::Tensor sinks = in[3].view({1, -1, 1});
    return without.out * at::sigmoid(without.log_sum - sinks);
  };
}

TEST(AttentionFormula, SinksAreKeysWithoutAValue) {
  Random random;
  for (int round = 0; round < 4; ++round) {
    std::vector<int64_t> starts = {0};
    for (int64_t i = random.in(1, 4); i > 0; --i) starts.push_back(starts.back() + random.in(1, 200));
    const int64_t group = random.in(1, 3), kv_heads = random.in(1, 2), head_dim = random.in(1, 40);
    Inputs in = make_formula_inputs(starts.back(), starts.back(), kv_heads * group, kv_heads, head_dim, 7);
    in.push_back(trained(2 * random_tensor({kv_heads * group}, 11)));
    for (const AttentionFormula& formula : formulas(random.in(1, 100))) {
      SCOPED_TRACE(::testing::Message() << at::IntArrayRef(starts) << ", " << shown(formula) << ", "
                                        << kv_heads << " times " << group << " heads of " << head_dim);
      expect_same(fused_with_sinks(starts, formula), sinks_by_definition(starts, formula), in, 1e-11);
      expect_near_double(fused_with_sinks(starts, formula), in, at::kFloat, 2e-5);
      expect_near_double(fused_with_sinks(starts, formula), in, at::kBFloat16, 6e-2);
      if (HasFailure()) return;
    }
  }
  gradcheck(fused_with_sinks({0, 1, 5, 9}, {0.4, true, 2}), [] {
    Inputs in = make_formula_inputs(9, 9, 4, 2, 3, 1);
    in.push_back(trained(random_tensor({4}, 5)));
    return in;
  }());
}

TEST(AttentionFormula, GradientsMatchCentralDifferences) {
  for (const AttentionFormula& formula : formulas(2)) {
    SCOPED_TRACE(shown(formula));
    gradcheck(fused_formula({0, 1, 5, 9}, formula), make_formula_inputs(9, 9, 4, 2, 3, 1));
  }
}

TEST(AttentionFormula, RandomDocumentsEqualTheDefinition) {
  Random random;
  for (int round = 0; round < 4; ++round) {
    std::vector<int64_t> starts = {0};
    const int64_t documents = round == 0 ? 1 : random.in(1, 4), longest = round == 0 ? 1200 : 100;
    for (int64_t i = 0; i < documents; ++i) starts.push_back(starts.back() + random.in(0, longest));
    const int64_t group = random.in(1, 3), kv_heads = random.in(1, 2), head_dim = random.in(1, 40);
    const Inputs in =
        make_formula_inputs(starts.back(), starts.back(), kv_heads * group, kv_heads, head_dim, 7);
    for (const AttentionFormula& formula : formulas(random.in(1, random.in(1, longest)))) {
      SCOPED_TRACE(::testing::Message() << at::IntArrayRef(starts) << ", " << shown(formula) << ", "
                                        << kv_heads << " times " << group << " heads of " << head_dim);
      expect_same(fused_formula(starts, formula), definition(starts, formula), in, 1e-11);
      expect_near_double(fused_formula(starts, formula), in, at::kFloat, 2e-5);
      expect_near_double(fused_formula(starts, formula), in, at::kBFloat16, 6e-2);
      if (formula.dropout.probability == 0)
        expect_near(plain::document_attention(in[0], in[1], in[2], starts, formula),
                    definition(starts, formula)(in), 1e-11, "plain");
      if (HasFailure()) return;
    }
  }
}

// Tiles outside the window are not read: their tokens hold NaN here, which any product with them would show.
TEST(AttentionFormula, TilesOutsideTheWindowCostNothing) {
  constexpr int64_t kTokens = 3000, kWindow = 100, kFirst = 2000, kCount = 70;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(type));
    Inputs in;
    for (const at::Tensor& tensor : make_formula_inputs(kTokens, kTokens, 4, 2, 32, 3)) {
      in.push_back(trained(tensor.to(type)));
    }
    const AttentionFormula formula{.scale = 0.4, .window = kWindow};
    // Only the results of `kCount` tokens have a gradient.
    const Op some = [&](const Inputs& inputs) {
      return fused_formula({0, kTokens}, formula)(inputs).narrow(0, kFirst, kCount);
    };
    const Evaluation want = evaluate(some, in);
    // A tile holds at most 64 queries or keys; the queries that one task takes together share a block of
    // keys.
    const int64_t begin = kFirst - kWindow - 2 * 64, end = kFirst + kCount + 64;
    Inputs poisoned;
    for (const at::Tensor& tensor : in) {
      at::Tensor copy = tensor.detach().clone();
      copy.narrow(0, 0, begin).fill_(NAN);
      copy.narrow(0, end, kTokens - end).fill_(NAN);
      poisoned.push_back(trained(copy));
    }
    EXPECT_TRUE(at::equal(some(poisoned), want.output));
    for (size_t i = 1; i < in.size(); ++i) {
      const at::Tensor outside = want.gradients[i].narrow(0, 0, kFirst - kWindow + 1);
      EXPECT_EQ(outside.abs().max().item<double>(), 0.0) << i;
    }
  }
}

// Expects the result, and the gradients if the result is all of the softmax, to equal the definition in
// float64 and float32.
void expect_by_definition(const Inputs& in, const std::vector<AttentionSpan>& spans,
                          const AttentionFormula& given) {
  const AttentionResult want = by_definition(in, spans, given);
  const AttentionFormula formula = drawn(given, in[0]);
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-11}, {at::kFloat, 3e-5}}) {
    const at::Tensor q = in[0].detach().to(type), k = in[1].detach().to(type), v = in[2].detach().to(type);
    const AttentionResult got = attend_spans(q, k, v, spans, formula);
    expect_near(got.out, want.out, tolerance, "out");
    EXPECT_TRUE(at::allclose(got.log_sum.to(at::kDouble), want.log_sum.detach(), 0.0, 10 * tolerance));
    const at::Tensor direction = random_tensor(want.out.sizes(), 5);
    const auto gradients = torch::autograd::grad({want.out}, in, {direction}, true);
    const AttentionGradients own = attend_spans_backward(direction.to(type), q, k, v, got, spans, formula);
    expect_near(own.q, gradients[0], tolerance, "q");
    expect_near(own.k, gradients[1], tolerance, "k");
    expect_near(own.v, gradients[2], tolerance, "v");
  }
}

// Queries without a key see nothing in either direction, beside other queries and alone.
TEST(AttentionFormula, ASpanWithoutKeysGivesZeros) {
  for (const AttentionFormula& formula : formulas(7)) {
    SCOPED_TRACE(shown(formula));
    expect_by_definition(make_formula_inputs(50, 30, 4, 2, 16, 11), {{0, 20, 0, 0, 3}, {20, 30, 0, 30, 0}},
                         formula);
    expect_by_definition(make_formula_inputs(50, 0, 4, 2, 16, 11), {{0, 50, 0, 0, 3}}, formula);
  }
}

// The queries' keys lie before them, around them, far away, and nowhere.
TEST(AttentionFormula, RandomSpansEqualTheDefinition) {
  Random random;
  for (int round = 0; round < 5; ++round) {
    std::vector<AttentionSpan> spans;
    int64_t queries = random.in(0, 5), keys = random.in(0, 5);
    for (int64_t i = random.in(1, 3); i > 0; --i) {
      const int64_t longest = round == 0 ? 700 : 120;
      const AttentionSpan span{queries, random.in(0, longest), keys, random.in(0, longest),
                               random.in(-longest, 2 * longest)};
      queries += span.queries + random.in(0, 3);
      keys += span.keys + random.in(0, 3);
      spans.push_back(span);
    }
    const int64_t group = random.in(1, 2), head_dim = random.in(1, 40);
    const Inputs in = make_formula_inputs(queries, keys, 2 * group, 2, head_dim, 11);
    for (const AttentionFormula& formula : formulas(random.in(1, 200))) {
      SCOPED_TRACE(::testing::Message() << round << ": " << shown(formula));
      expect_by_definition(in, spans, formula);
      if (HasFailure()) return;
    }
  }
}

// Neighbours in each direction are dropped independently of each other.
TEST(AttentionFormula, DropoutDropsItsShareOfThePairs) {
  constexpr double kProbability = 0.2;
  const at::Tensor q = at::zeros({300, 8, 1});
  const AttentionFormula formula = drawn({.is_causal = false, .dropout = {kProbability}}, q);
  const at::Tensor factors = dropout_factors(formula.dropout, {0, 300, 0, 300, 0}, at::kDouble);
  EXPECT_TRUE(at::equal(factors, pair_factors({{0, 300, 0, 300, 0}}, formula.dropout, 300)));
  const at::Tensor drops = factors.eq(0).to(at::kDouble);
  // Ten standard deviations of the shares of some 700,000 pairs.
  const double p = kProbability, many = 700000;
  EXPECT_NEAR(drops.mean().item<double>(), p, 10 * std::sqrt(p * (1 - p) / many));
  for (int64_t dim = 0; dim < 3; ++dim) {
    const at::Tensor both =
        drops.narrow(dim, 1, drops.size(dim) - 1) * drops.narrow(dim, 0, drops.size(dim) - 1);
    EXPECT_NEAR(both.mean().item<double>(), p * p, 10 * std::sqrt(p * p * (1 - p * p) / many)) << dim;
  }
}

TEST(AttentionFormula, RefusesWhatMeansNothing) {
  const Inputs in = make_formula_inputs(5, 5, 2, 1, 4, 9);
  for (const AttentionFormula& formula :
       {AttentionFormula{0.0}, AttentionFormula{-1.0}, AttentionFormula{1.0, true, -1},
        AttentionFormula{1.0, true, 0, -0.5}, AttentionFormula{NAN}, AttentionFormula{.dropout = {1.0}}}) {
    EXPECT_THROW(fused_formula({0, 5}, formula)(in), Error);
  }
  for (const at::Tensor& draws : {at::zeros({4, 2}, at::kLong), at::zeros({5, 2}), at::Tensor()}) {
    const AttentionFormula formula{.dropout = {0.5, draws}};
    EXPECT_THROW(document_attention(in[0], in[1], in[2], {0, 5}, formula), Error);
  }
  using Spans = std::vector<AttentionSpan>;
  for (const Spans& spans :
       {Spans{{0, 6, 0, 5, 0}}, Spans{{0, 5, 1, 5, 0}}, Spans{{0, 3, 0, 2, 0}, {2, 2, 2, 2, 0}},
        Spans{{0, 2, 0, 3, 0}, {2, 2, 2, 2, 0}}, Spans{{-1, 2, 0, 3, 0}}}) {
    EXPECT_THROW(attend_spans(in[0].detach(), in[1].detach(), in[2].detach(), spans, {1.0}), Error);
  }
}

}  // namespace
}  // namespace tessera::ops
