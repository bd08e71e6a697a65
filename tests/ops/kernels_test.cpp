#include "tessera/ops/kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/core/rng.h"

namespace tessera::ops::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(KernelsTest, ExpIsExactToTwoUnitsOverItsWholeRange) {
  std::vector<float> x;
  for (double value = -87.0; value < 0.5; value += 0.00137) x.push_back(static_cast<float>(value));
  std::vector<float> y = x;
  shifted_exp(y.data(), 0.0f, static_cast<int64_t>(y.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i] / exact, 1.0, 2.4e-7) << x[i];
  }
}

TEST(KernelsTest, ExpAtTheEnds) {
  // The end values come once in a full vector and once among the elements that fill none.
  std::vector<float> x(37);
  const std::vector<float> ends = {-kInfinity, -1e30f, -100.0f, 0.0f, NAN};
  std::copy(ends.begin(), ends.end(), x.begin());
  std::copy(ends.begin(), ends.end(), x.begin() + 32);
  shifted_exp(x.data(), 0.0f, 37);
  for (const size_t at : {0, 32}) {
    EXPECT_EQ(x[at], 0.0f);
    EXPECT_EQ(x[at + 1], 0.0f);
    EXPECT_EQ(x[at + 2], 0.0f);
    EXPECT_EQ(x[at + 3], 1.0f);
    EXPECT_TRUE(std::isnan(x[at + 4]));
  }
}

TEST(KernelsTest, LogSumExpOverBlocksOfEverySize) {
  const CounterRng rng(1, 2);
  for (const int64_t n : {1, 2, 15, 16, 17, 1023, 1024, 1025, 5000}) {
    std::vector<float> x(n);
    std::vector<double> wide(n);
    // The values grow, so that the running maximum changes in every block.
    for (int64_t i = 0; i < n; ++i)
      x[i] = static_cast<float>(rng.normal(i) * 3 + 0.02 * static_cast<double>(i));
    double largest = -INFINITY, sum = 0;
    for (const float value : x) largest = std::max<double>(largest, value);
    for (const float value : x) sum += std::exp(value - largest);
    for (int64_t i = 0; i < n; ++i) wide[i] = x[i];
    const double expected = largest + std::log(sum);
    EXPECT_NEAR(log_sum_exp(x.data(), n), expected, 3e-6 * std::max(1.0, std::abs(expected))) << n;
    EXPECT_NEAR(log_sum_exp(wide.data(), n), expected, 1e-12 * std::max(1.0, std::abs(expected))) << n;
  }
}

TEST(KernelsTest, LogSumExpOfInfiniteAndHugeLogits) {
  std::vector<float> masked(2000, -kInfinity);
  EXPECT_EQ(log_sum_exp(masked.data(), 2000), -kInfinity);
  masked[1500] = 2.0f;
  EXPECT_FLOAT_EQ(log_sum_exp(masked.data(), 2000), 2.0f);
  const std::vector<float> huge = {3e38f, 3e38f};
  EXPECT_FLOAT_EQ(log_sum_exp(huge.data(), 2), 3e38f);
  std::vector<float> poisoned(2000, 1.0f);
  poisoned[7] = NAN;
  EXPECT_TRUE(std::isnan(log_sum_exp(poisoned.data(), 2000)));
}

TEST(KernelsTest, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // halfway between 0x3f80 and 0x3f81: even
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);  // halfway between 0x3f81 and 0x3f82: even
  EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
  EXPECT_EQ(to_bf16(3.4e38f).bits, 0x7f80);  // beyond the largest finite value
  EXPECT_TRUE(std::isnan(to_float(to_bf16(NAN))));
}

TEST(KernelsTest, PhiloxBlocksEqualTheCounterRng) {
  const CounterRng rng(3, 4, 0x123456789abcdefULL);
  const uint64_t first = 0xfffffffeULL;  // crosses into the upper word of the counter
  std::vector<uint32_t> words(4 * 37);
  philox_blocks(first, 0x123456789abcdefULL, rng.key(), words.data(), 37);
  for (uint64_t block = 0; block < 37; ++block) {
    const auto expected = rng.words(first + block);
    for (size_t i = 0; i < 4; ++i) ASSERT_EQ(words[4 * block + i], expected[i]) << block;
  }
}

}  // namespace
}  // namespace tessera::ops::kernels
