#include "tessera/core/float_cast.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(FloatCastTest, HalfMatchesTheCompilersConversion) {
  // Every 17th float bit pattern of both signs covers normals, subnormals, overflow and specials.
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65537 * 17) {
    const float value = __builtin_bit_cast(float, static_cast<uint32_t>(bits));
    if (std::isnan(value)) continue;
    const auto expected = __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
    ASSERT_EQ(float_to_half(value), expected) << value;
  }
  for (const float value :
       {0.0F, -0.0F, 65504.0F, 65519.9F, 65520.0F, 5.9604645e-8F, 2.9802322e-8F, 6.1e-5F, INFINITY}) {
    EXPECT_EQ(float_to_half(value), __builtin_bit_cast(uint16_t, static_cast<_Float16>(value))) << value;
  }
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::quiet_NaN()) & 0x7c00, 0x7c00);
  EXPECT_NE(float_to_half(std::numeric_limits<float>::quiet_NaN()) & 0x03ff, 0);
}

TEST(FloatCastTest, Bfloat16RoundsToEven) {
  EXPECT_EQ(float_to_bfloat16(1.0F), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(1.00390625F), 0x3f80);  // halfway: rounds to even
  EXPECT_EQ(float_to_bfloat16(1.01171875F), 0x3f82);  // halfway: rounds to even
  EXPECT_EQ(float_to_bfloat16(INFINITY), 0x7f80);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()) & 0x7fff, 0x7fc0);
}

}  // namespace
}  // namespace tessera
