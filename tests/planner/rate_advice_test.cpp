#include "tessera/planner/rate_advice.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace tessera::planner {
namespace {

// Returns losses of 80 steps at rates from 1e-6 to 100 by equal factors.
template <class Loss>
std::vector<RatePoint> points_of(const Loss& loss) {
  std::vector<RatePoint> points;
  for (int64_t i = 0; i < 80; ++i) {
    const double exponent = -6.0 + 8.0 * static_cast<double>(i) / 79.0;
    points.push_back({std::pow(10.0, exponent), loss(exponent)});
  }
  return points;
}

// The loss is flat up to 1e-4, falls along half a wave up to 1e-2, and then grows.
double bowl(double exponent) {
  if (exponent < -4.0) return 5.0;
  if (exponent < -2.0) return 4.0 + std::cos((exponent + 4.0) * M_PI / 2.0);
  return 3.0 + std::pow(exponent + 2.0, 2.0) * 4.0;
}

TEST(RateAdviceTest, FindsTheFallAndTheEnd) {
  const RateAdvice advice = advise_rate(points_of(bowl), 0.0);
  EXPECT_NEAR(std::log10(advice.best_rate), -2.0, 0.11);
  ASSERT_TRUE(advice.steepest_rate && advice.tenth_of_best && advice.divergence_rate);
  EXPECT_NEAR(std::log10(*advice.steepest_rate), -3.0, 0.11);
  EXPECT_NEAR(std::log10(*advice.tenth_of_best), -3.0, 0.11);
  // The loss began at 5, and 3 + 4 x^2 is above that by 15 % where x^2 is 0.6875.
  EXPECT_NEAR(std::log10(*advice.divergence_rate), -2.0 + std::sqrt(0.6875), 0.11);
}

// Smoothing moves what is found to later steps, by less than its memory of ten steps.
TEST(RateAdviceTest, SmoothingKeepsThePlace) {
  const RateAdvice advice =
      advise_rate(points_of([](double exponent) { return bowl(exponent) + 0.3 * std::sin(1e4 * exponent); }));
  ASSERT_TRUE(advice.steepest_rate);
  EXPECT_GT(std::log10(*advice.steepest_rate), -3.2);
  EXPECT_LT(std::log10(*advice.steepest_rate), -2.0);
}

// Losses of single documents differ by more than the rate changes them: then only the end is told.
TEST(RateAdviceTest, NoiseGetsNoAdvice) {
  uint64_t state = 7;
  const auto noisy = points_of([&](double exponent) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double noise = static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
    return exponent < 0.0 ? 3.0 + 2.0 * noise : 3.0 + 20.0 * exponent;
  });
  const RateAdvice advice = advise_rate(noisy);
  EXPECT_FALSE(advice.steepest_rate || advice.tenth_of_best);
  ASSERT_TRUE(advice.divergence_rate);
  EXPECT_GT(std::log10(*advice.divergence_rate), 0.0);
  EXPECT_LT(std::log10(*advice.divergence_rate), 1.0);
}

TEST(RateAdviceTest, WhatNeverFallsGetsNoAdvice) {
  const RateAdvice grows = advise_rate(points_of([](double exponent) { return 8.0 + exponent; }));
  EXPECT_FALSE(grows.steepest_rate);
  EXPECT_FALSE(grows.tenth_of_best);
  const RateAdvice none = advise_rate({});
  EXPECT_FALSE(none.steepest_rate || none.divergence_rate);
}

TEST(RateAdviceTest, ALossThatIsNoNumberEndsTheTest) {
  std::vector<RatePoint> points = points_of(bowl);
  points[30].loss = std::numeric_limits<double>::quiet_NaN();
  const RateAdvice advice = advise_rate(points);
  EXPECT_EQ(advice.smoothed.size(), 30u);
  EXPECT_EQ(advice.divergence_rate, points[30].rate);
}

}  // namespace
}  // namespace tessera::planner
