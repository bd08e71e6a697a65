#include "tessera/ops/gated_delta_rule.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/ops/causal_convolution.h"
#include "tessera/ops/delta_chunks.h"
#include "tessera/ops/leaf.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

using Starts = std::vector<int64_t>;

// Heads of odd sizes; values are three for each key head.
constexpr int64_t kKeyHeads = 2, kValues = 3, kHeads = kKeyHeads * kValues;
constexpr DeltaHead kHead{5, 7};
constexpr int64_t kWidth = 2 * kHead.key_dim + kValues * kHead.value_dim;

Inputs inputs_of(int64_t tokens, at::ScalarType type = at::kDouble) {
  return {random_tensor({tokens, kKeyHeads, kWidth}, 1, type),
          -random_tensor({tokens, kHeads}, 2).abs().to(type),
          at::sigmoid(random_tensor({tokens, kHeads}, 3)).to(type)};
}

at::Tensor normed(const at::Tensor& x) { return x * at::rsqrt(x.square().sum(-1, true) + 1e-6); }

// Returns what each token reads, and the memory after the last one, token by token.
std::pair<at::Tensor, at::Tensor> step_by_step(const Inputs& in, const Starts& starts,
                                               at::Tensor memory = {}) {
  const at::Tensor& rows = in[0];
  const auto heads = [&](const at::Tensor& x) { return normed(x).repeat_interleave(kValues, 1); };
  const at::Tensor q = heads(rows.narrow(2, 0, kHead.key_dim)) / std::sqrt(double{kHead.key_dim}),
                   k = heads(rows.narrow(2, kHead.key_dim, kHead.key_dim)),
                   v = rows.narrow(2, 2 * kHead.key_dim, kValues * kHead.value_dim)
                           .reshape({rows.size(0), kHeads, kHead.value_dim});
  std::vector<at::Tensor> out;
  for (size_t document = 0; document + 1 < starts.size(); ++document) {
    const at::Tensor none = at::zeros({kHeads, kHead.key_dim, kHead.value_dim}, rows.options());
    if (document > 0 || !memory.defined()) memory = none;
    for (int64_t t = starts[document]; t < starts[document + 1]; ++t) {
      memory = memory * in[1][t].exp().view({kHeads, 1, 1});
      const at::Tensor told = (memory * k[t].unsqueeze(2)).sum(1);
      memory = memory + k[t].unsqueeze(2) * (in[2][t].unsqueeze(1) * (v[t] - told)).unsqueeze(1);
      out.push_back((memory * q[t].unsqueeze(2)).sum(1));
    }
  }
  return {at::stack(out), memory};
}

Op chunked(const Starts& starts) {
  return [starts](const Inputs& in) { return gated_delta_rule({in[0], in[1], in[2]}, kHead, starts); };
}

// Documents of one token, of a chunk, of what begins and ends inside of one, and empty ones; lines that end
// before, at and after the end of a chunk, and of more chunks than a task has.
const std::vector<Starts>& all_starts() {
  static const std::vector<Starts> all = {{0, 1},
                                          {0, 5, 5, 6, 9},
                                          {0, kDeltaChunk},
                                          {0, kDeltaChunk + 1},
                                          {0, 3, 4, 63, 64, 66, 130, 150},
                                          {0, 130, 192},
                                          {0, 2 * kDeltaChunk - 1, 2 * kDeltaChunk, 18 * kDeltaChunk + 3}};
  return all;
}

TEST(GatedDeltaRule, EqualsTheRecurrenceStepByStep) {
  for (const Starts& starts : all_starts()) {
    SCOPED_TRACE(at::IntArrayRef(starts));
    Inputs in = inputs_of(starts.back());
    for (at::Tensor& input : in) input = trained(input);
    const Op reference = [&](const Inputs& x) { return step_by_step(x, starts).first; };
    expect_same(chunked(starts), reference, in, 1e-12);
    const PlainOps plain;
    expect_same(chunked(starts), reference, in, 1e-12);
  }
}

TEST(GatedDeltaRule, GradientsMatchCentralDifferences) {
  gradcheck(chunked({0, 3, 9}),
            {trained(inputs_of(9)[0]), trained(inputs_of(9)[1]), trained(inputs_of(9)[2])});
}

TEST(GatedDeltaRule, NoTokensReadNothing) {
  for (const Starts& starts : {Starts{0}, Starts{0, 0}}) {
    Inputs in = inputs_of(0);
    for (at::Tensor& input : in) input = trained(input);
    const Evaluation result = evaluate(chunked(starts), in);
    EXPECT_EQ(result.output.sizes(), (std::vector<int64_t>{0, kHeads, kHead.value_dim}));
    for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(result.gradients[i].sizes(), in[i].sizes());
    const Inputs rows = {trained(at::zeros({0, 9}, at::kDouble)), trained(random_tensor({9, 4}, 1))};
    const Evaluation convolved =
        evaluate([&](const Inputs& x) { return causal_convolution(x[0], x[1], starts, true); }, rows);
    EXPECT_EQ(convolved.gradients[1].abs().max().item<double>(), 0.0);
  }
}

TEST(GatedDeltaRule, TakesRowsWithGapsAndStrengthsOfNothing) {
  const Starts starts = {0, 70, 100};
  Inputs in = inputs_of(100);
  in[2].narrow(0, 10, 20).zero_();
  in[1].narrow(0, 40, 5).fill_(-200.0);  // all is forgotten
  const Op reference = [&](const Inputs& x) { return step_by_step(x, starts).first; };
  expect_same(chunked(starts), reference, {trained(with_gaps(in[0])), trained(in[1]), trained(in[2])}, 1e-12);
}

TEST(GatedDeltaRule, Float32AndBfloat16AreNearFloat64) {
  const Starts starts = {0, 90, 200};
  Inputs in = inputs_of(200);
  for (at::Tensor& input : in) input = trained(input);
  expect_near_double(chunked(starts), in, at::kFloat, 2e-5);
  expect_near_double(chunked(starts), in, at::kBFloat16, 3e-2);
}

TEST(GatedDeltaRule, GoesOnFromAMemory) {
  const at::Tensor memory = random_tensor({2, kHeads, kHead.key_dim, kHead.value_dim}, 9);
  const Inputs in = inputs_of(80);
  const Starts starts = {0, 70, 80};
  const auto [out, after] = continue_delta_rule({in[0], in[1], in[2]}, kHead, starts, memory);
  for (int64_t i = 0; i < 2; ++i) {
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, 70 * i, i == 0 ? 70 : 10); };
    const auto [want, want_after] =
        step_by_step({own(in[0]), own(in[1]), own(in[2])}, {0, i == 0 ? 70 : 10}, memory[i]);
    expect_near(own(out), want, 1e-12, "result");
    expect_near(after[i], want_after, 1e-12, "memory");
  }
}

TEST(GatedDeltaRule, OneTokenOfEachSequenceDoesNotDependOnTheOthers) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor memory = random_tensor({3, kHeads, kHead.key_dim, kHead.value_dim}, 9, type);
    const Inputs in = inputs_of(3, type);
    const auto run = [&](int64_t first, int64_t count) {
      const auto own = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
      Starts starts;
      for (int64_t i = 0; i <= count; ++i) starts.push_back(i);
      return continue_delta_rule({own(in[0]), own(in[1]), own(in[2])}, kHead, starts, own(memory));
    };
    const auto [all, all_after] = run(0, 3);
    for (int64_t i = 0; i < 3; ++i) {
      const auto [alone, after] = run(i, 1);
      EXPECT_TRUE(at::equal(alone[0], all[i]));
      EXPECT_TRUE(at::equal(after[0], all_after[i]));
      const auto own = [&](const at::Tensor& x) { return x.narrow(0, i, 1).to(at::kDouble); };
      const auto [want, want_after] =
          step_by_step({own(in[0]), own(in[1]), own(in[2])}, {0, 1}, memory[i].to(at::kDouble));
      expect_near(alone, want, type == at::kFloat ? 1e-5 : 1e-13, "result");
      expect_near(after[0], want_after, type == at::kFloat ? 1e-5 : 1e-13, "memory");
      const PlainOps plain;
      expect_near(run(i, 1).first, want, type == at::kFloat ? 1e-5 : 1e-13, "result of the formula");
    }
  }
}

TEST(GatedDeltaRule, RefusesWhatItCannotCompute) {
  const Inputs in = inputs_of(4);
  EXPECT_THROW(gated_delta_rule({in[0], in[1], in[2]}, {5, 6}, {0, 4}), Error);
  EXPECT_THROW(gated_delta_rule({in[0], in[1], in[2]}, kHead, {0, 3}), Error);
  EXPECT_THROW(gated_delta_rule({in[0], in[1].narrow(1, 0, 5), in[2]}, kHead, {0, 4}), Error);
  EXPECT_THROW(gated_delta_rule({in[0].to(at::kLong), in[1], in[2]}, kHead, {0, 4}), Error);
  EXPECT_THROW(continue_delta_rule({in[0], in[1], in[2]}, kHead, {0, 4, 4, 4, 4},
                                   at::zeros({4, kHeads, 5, 7}, at::kDouble)),
               Error);
}

Op convolution(const Starts& starts, bool has_silu) {
  return [=](const Inputs& in) { return causal_convolution(in[0], in[1], starts, has_silu); };
}

// Each document alone through LibTorch's convolution.
Op convolution_by_formula(const Starts& starts, bool has_silu) {
  return [=](const Inputs& in) {
    const int64_t taps = in[1].size(1), channels = in[0].size(1);
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      const int64_t count = starts[i + 1] - starts[i];
      if (count == 0) continue;
      const at::Tensor padded =
          at::constant_pad_nd(in[0].narrow(0, starts[i], count).t(), {taps - 1, 0}).unsqueeze(0);
      const at::Tensor y = at::conv1d(padded, in[1].unsqueeze(1), {}, 1, at::IntArrayRef{0}, 1, channels);
      parts.push_back(y[0].t());
    }
    const at::Tensor y = at::cat(parts);
    return has_silu ? at::silu(y) : y;
  };
}

// More channels than a task has; documents shorter than the convolution, and empty ones.
TEST(CausalConvolution, EqualsLibTorchsForEachDocumentAlone) {
  for (const Starts& starts : std::vector<Starts>{{0, 1}, {0, 2, 2, 3, 20}, {0, 9}}) {
    for (const int64_t taps : {1, 4, 6}) {
      for (const bool has_silu : {false, true}) {
        SCOPED_TRACE(::testing::Message() << at::IntArrayRef(starts) << ", taps " << taps);
        const Inputs in = {random_tensor({starts.back(), 300}, 4), random_tensor({300, taps}, 5)};
        expect_same_for_subsets(convolution(starts, has_silu), convolution_by_formula(starts, has_silu), in,
                                2, 1e-12);
        const PlainOps plain;
        expect_same_for_subsets(convolution(starts, has_silu), convolution_by_formula(starts, has_silu), in,
                                2, 1e-12);
      }
    }
  }
}

TEST(CausalConvolution, TakesOtherTypesAndViews) {
  const Inputs in = {trained(random_tensor({12, 9}, 6)), trained(random_tensor({9, 4}, 7))};
  expect_near_double(convolution({0, 5, 12}, true), in, at::kFloat, 2e-6);
  expect_near_double(convolution({0, 5, 12}, true), in, at::kBFloat16, 3e-2);
  expect_same(convolution({0, 5, 12}, true), convolution_by_formula({0, 5, 12}, true),
              {trained(with_gaps(in[0])), trained(with_gaps(in[1]))}, 1e-12);
  EXPECT_THROW(causal_convolution(in[0], in[1], {0, 11}, true), Error);
  EXPECT_THROW(causal_convolution(in[0], in[1].narrow(0, 0, 8), {0, 12}, true), Error);
}

}  // namespace
}  // namespace tessera::ops
