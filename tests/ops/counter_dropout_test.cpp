#include "tessera/ops/counter_dropout.h"

#include <cmath>
#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/ops/leaf.h"

namespace tessera::ops {
namespace {

TEST(CounterDropoutTest, ASliceEqualsItsPlaceInTheWhole) {
  const at::Tensor whole = dropout_mask({70, 37}, 0.3, 1, 2, 3, 0, at::kFloat).flatten();
  for (const int64_t first : {0, 1, 2, 3, 5, 1023, 1025, 2589}) {
    const int64_t size = whole.numel() - first;
    EXPECT_TRUE(
        at::equal(dropout_mask({size}, 0.3, 1, 2, 3, first, at::kFloat), whole.narrow(0, first, size)))
        << first;
  }
}

TEST(CounterDropoutTest, IsWhatTheCounterRngDraws) {
  const CounterRng rng(9, 8, 7);
  const at::Tensor mask = dropout_mask({101}, 0.25, 9, 8, 7, 6, at::kDouble);
  for (int64_t i = 0; i < 101; ++i) {
    const auto element = static_cast<uint64_t>(6 + i);
    const double unit = rng.words(element / 4)[element % 4] * 0x1.0p-32;
    ASSERT_EQ(mask[i].item<double>(), unit < 0.25 ? 0.0 : 1 / 0.75) << i;
  }
}

TEST(CounterDropoutTest, DoesNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = dropout_mask({100003}, 0.5, 1, 1, 1, 0, at::kFloat);
  at::set_num_threads(3);
  const at::Tensor three = dropout_mask({100003}, 0.5, 1, 1, 1, 0, at::kFloat);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, three));
}

// A rank that holds some columns of an input draws its part of the whole mask, on any number of threads.
TEST(CounterDropoutTest, PartOfARowIsCutOutOfTheWhole) {
  const at::Tensor whole = dropout_mask({700, 53}, 0.4, 1, 2, 3, 0, at::kFloat);
  for (const auto& [first, size] : {std::pair<int64_t, int64_t>{0, 53}, {0, 20}, {20, 33}, {52, 1}}) {
    const at::Tensor part = dropout_mask({700, size}, 0.4, 1, 2, 3, first, at::kFloat, 53);
    EXPECT_TRUE(at::equal(part, whole.narrow(1, first, size))) << first;
  }
}

// The mask for the rows of some tokens in any order, of which a rank holds some columns, is cut out of the
// whole mask, with and without kernels.
TEST(CounterDropoutTest, RowsInAnyOrderAreCutOutOfTheWhole) {
  const at::Tensor whole = dropout_mask({70, 37}, 0.3, 1, 2, 3, 0, at::kDouble);
  const std::vector<int64_t> rows = {69, 0, 5, 5, 4, 33};
  for (const bool is_plain : {false, true}) {
    std::optional<PlainOps> plain;
    if (is_plain) plain.emplace();
    for (const auto& [column, width] : {std::pair<int64_t, int64_t>{0, 37}, {3, 30}, {36, 1}}) {
      std::vector<int64_t> first;
      for (const int64_t row : rows) first.push_back(row * 37 + column);
      const at::Tensor mask = dropout_mask_of_rows(first, width, 0.3, 1, 2, 3, at::kDouble);
      EXPECT_TRUE(
          at::equal(mask, whole.index_select(0, at::tensor(rows, at::kLong)).narrow(1, column, width)))
          << column;
    }
  }
  EXPECT_EQ(dropout_mask_of_rows({}, 4, 0.5, 1, 2, 3, at::kFloat).sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(at::equal(dropout_mask_of_rows({8, 0}, 4, 0.0, 1, 2, 3, at::kFloat), at::ones({2, 4})));
}

TEST(CounterDropoutTest, RateAndValuesAreRight) {
  for (const double p : {0.05, 0.5, 0.9}) {
    const at::Tensor mask = dropout_mask({1000, 200}, p, 5, 6, 7, 0, at::kDouble);
    const at::Tensor dropped = mask.eq(0);
    EXPECT_TRUE((dropped | (mask - 1 / (1 - p)).abs().lt(1e-15)).all().item<bool>());
    const double rate = dropped.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(rate, p, 5 * std::sqrt(p * (1 - p) / 200000)) << p;
  }
}

TEST(CounterDropoutTest, SeedStreamAndStepAllMatter) {
  const auto draw = [](uint64_t seed, uint64_t stream, uint64_t step) {
    return dropout_mask({512}, 0.5, seed, stream, step, 0, at::kFloat);
  };
  EXPECT_FALSE(at::equal(draw(1, 2, 3), draw(2, 2, 3)));
  EXPECT_FALSE(at::equal(draw(1, 2, 3), draw(1, 3, 3)));
  EXPECT_FALSE(at::equal(draw(1, 2, 3), draw(1, 2, 4)));
}

TEST(CounterDropoutTest, ZeroKeepsAllAndBadRatesAreRefused) {
  EXPECT_TRUE(at::equal(dropout_mask({3, 4}, 0.0, 1, 2, 3, 0, at::kFloat), at::ones({3, 4})));
  EXPECT_EQ(dropout_mask({0, 4}, 0.5, 1, 2, 3, 0, at::kBFloat16).numel(), 0);
  EXPECT_EQ(dropout_mask({9}, 0.5, 1, 2, 3, 0, at::kBFloat16).to(at::kFloat).max().item<float>(), 2.0f);
  for (const double p : {-0.1, 1.0, 2.0, static_cast<double>(NAN)}) {
    EXPECT_THROW(dropout_mask({3}, p, 1, 2, 3, 0, at::kFloat), Error) << p;
  }
}

TEST(CounterNoiseTest, IsUniformAndASliceEqualsItsPlaceInTheWhole) {
  const at::Tensor whole = uniform_noise({300, 37}, 1, 2, 3, 0, at::kDouble).flatten();
  EXPECT_LT(whole.abs().max().item<double>(), 1.0);
  EXPECT_NEAR(whole.mean().item<double>(), 0.0, 0.03);
  EXPECT_NEAR(whole.var().item<double>(), 1.0 / 3.0, 0.02);
  for (const int64_t first : {1, 5, 1023, 2589}) {
    EXPECT_TRUE(at::equal(uniform_noise({77}, 1, 2, 3, first, at::kDouble), whole.narrow(0, first, 77)));
  }
  const CounterRng rng(1, 2, 3);
  EXPECT_EQ(whole[41].item<double>(), (rng.words(10)[1] + 0.5) * 0x1.0p-31 - 1.0);
  EXPECT_FALSE(at::equal(whole, uniform_noise({300 * 37}, 1, 2, 4, 0, at::kDouble)));
}

}  // namespace
}  // namespace tessera::ops
