#include "tessera/core/rng.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tessera {
namespace {

// The expected numbers are the known answers of the Random123 distribution (kat_vectors, philox 4x32, 10
// rounds).
TEST(RngTest, PhiloxKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RngTest, IsAFunctionOfItsCounterAlone) {
  const CounterRng a(7, 3, 11), b(7, 3, 11), other_step(7, 3, 12), other_stream(7, 4, 11);
  EXPECT_EQ(a.bits(5), b.bits(5));
  EXPECT_NE(a.bits(5), a.bits(6));
  EXPECT_NE(a.bits(5), other_step.bits(5));
  EXPECT_NE(a.bits(5), other_stream.bits(5));
}

TEST(RngTest, MomentsAreRight) {
  const CounterRng rng(1, 2);
  constexpr int kCount = 100000;
  double sum = 0, square = 0, uniform = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = rng.normal(i);
    sum += x;
    square += x * x;
    uniform += rng.uniform(i);
    EXPECT_LT(rng.below(i, 10), 10u);
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(square / kCount, 1.0, 0.03);
  EXPECT_NEAR(uniform / kCount, 0.5, 0.01);
}

}  // namespace
}  // namespace tessera
