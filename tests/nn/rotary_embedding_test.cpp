#include "tessera/nn/rotary_embedding.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tessera::nn {
namespace {

// Returns the angle of pair `pair` at `position`, in one document of `length` tokens.
double angle(const RopeOptions& options, int64_t position, int64_t pair, int64_t length = 4) {
  const RotaryEmbedding rotary(options);
  const auto [cos, sin] = rotary.angles(at::arange(length), {0, length}, at::kDouble);
  return std::atan2(sin[position][pair].item<double>(), cos[position][pair].item<double>());
}

TEST(RotaryEmbedding, DefaultFollowsTheFormula) {
  RopeOptions options{.head_dim = 6, .theta = 100.0, .max_position_embeddings = 16};
  for (int64_t pair = 0; pair < 3; ++pair) {
    EXPECT_NEAR(angle(options, 3, pair), 3.0 * std::pow(100.0, -2.0 * static_cast<double>(pair) / 6.0),
                1e-14);
  }
}

TEST(RotaryEmbedding, LinearDivides) {
  RopeOptions options{.type = RopeType::Linear, .head_dim = 6, .theta = 100.0, .factor = 4.0};
  EXPECT_NEAR(angle(options, 2, 1), 2.0 * std::pow(100.0, -2.0 / 6.0) / 4.0, 1e-14);
}

TEST(RotaryEmbedding, ProportionalLeavesAngles) {
  RopeOptions options{.type = RopeType::Proportional, .head_dim = 10, .theta = 100.0, .factor = 4.0};
  options.turning = 2;
  EXPECT_NEAR(angle(options, 2, 1), 2.0 * std::pow(100.0, -2.0 / 10.0) / 4.0, 1e-14);
  EXPECT_EQ(angle(options, 2, 2), 0.0);
}

TEST(RotaryEmbedding, Llama3KeepsHighAndDividesLowFrequencies) {
  RopeOptions options{.type = RopeType::Llama3, .head_dim = 8, .theta = 10000.0, .factor = 8.0};
  options.original_max_position_embeddings = 64;
  options.low_freq_factor = 1.0;
  options.high_freq_factor = 4.0;
  // The wavelengths are 6.28, 62.8, 628 and 6283: below 64 / 4, between 64 / 4 and 64, above 64, above 64.
  EXPECT_NEAR(angle(options, 1, 0), 1.0, 1e-14);
  const double wavelength = 2.0 * M_PI / 0.1, smooth = (64.0 / wavelength - 1.0) / 3.0;
  EXPECT_NEAR(angle(options, 1, 1), (1.0 - smooth) * 0.1 / 8.0 + smooth * 0.1, 1e-14);
  EXPECT_NEAR(angle(options, 1, 2), 0.01 / 8.0, 1e-14);
  EXPECT_NEAR(angle(options, 1, 3), 0.001 / 8.0, 1e-14);
}

TEST(RotaryEmbedding, DynamicChangesOnlyLongDocuments) {
  RopeOptions options{.type = RopeType::Dynamic, .head_dim = 6, .theta = 100.0, .factor = 2.0};
  options.max_position_embeddings = 4;
  EXPECT_NEAR(angle(options, 3, 1, 4), 3.0 * std::pow(100.0, -2.0 / 6.0), 1e-14);
  const double theta = 100.0 * std::pow(2.0 * 6.0 / 4.0 - 1.0, 6.0 / 4.0);
  EXPECT_NEAR(angle(options, 3, 1, 6), 3.0 * std::pow(theta, -2.0 / 6.0), 1e-14);

  // A short document that is packed beside a long one has the angles that it has alone.
  const RotaryEmbedding rotary(options);
  const at::Tensor positions = at::cat({at::arange(6), at::arange(3)});
  const auto [cos, sin] = rotary.angles(positions, {0, 6, 9}, at::kDouble);
  EXPECT_NEAR(cos[8][1].item<double>(), std::cos(2.0 * std::pow(100.0, -2.0 / 6.0)), 1e-14);
  EXPECT_NEAR(sin[5][1].item<double>(), std::sin(5.0 * std::pow(theta, -2.0 / 6.0)), 1e-14);
}

TEST(RotaryEmbedding, YarnScalesCosAndSin) {
  EXPECT_DOUBLE_EQ(yarn_attention_factor(4.0, 0.0, 0.0), 0.1 * std::log(4.0) + 1.0);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(1.0, 0.0, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(4.0, 0.5, 1.0),
                   (0.05 * std::log(4.0) + 1.0) / (0.1 * std::log(4.0) + 1.0));
  RopeOptions options{.type = RopeType::Yarn, .head_dim = 8, .theta = 10000.0, .factor = 4.0};
  options.original_max_position_embeddings = 64;
  options.attention_factor = 1.5;
  const auto [cos, sin] = RotaryEmbedding(options).angles(at::arange(2), {0, 2}, at::kDouble);
  EXPECT_NEAR(cos[0][0].item<double>(), 1.5, 1e-14);
  // In the context 32 turns would be made before pair 0, and one turn, rounded up, is made by pair 2: so the
  // ramp over the pairs is 0, 1/2, 1, 1.
  EXPECT_NEAR(sin[1][0].item<double>(), 1.5 * std::sin(1.0), 1e-14);
  EXPECT_NEAR(sin[1][1].item<double>(), 1.5 * std::sin((0.1 + 0.1 / 4.0) / 2.0), 1e-14);
  EXPECT_NEAR(sin[1][2].item<double>(), 1.5 * std::sin(0.01 / 4.0), 1e-14);
  EXPECT_NEAR(sin[1][3].item<double>(), 1.5 * std::sin(0.001 / 4.0), 1e-14);
}

TEST(RotaryEmbedding, FloatModelsGetFloatAngles) {
  const RotaryEmbedding rotary({.head_dim = 4});
  EXPECT_EQ(rotary.angles(at::arange(3), {0, 3}, at::kFloat).first.scalar_type(), at::kFloat);
  EXPECT_EQ(rotary.angles(at::arange(3), {0, 3}, at::kBFloat16).first.scalar_type(), at::kFloat);
  EXPECT_EQ(rotary.angles(at::arange(3), {0, 3}, at::kDouble).first.scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace tessera::nn
