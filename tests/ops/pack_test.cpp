#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/ops/kernels/units.h"

#include "tests/testing/skip.h"

namespace tessera::ops::kernels {
namespace {

float widened(const char* bits_of_bf16) {
  uint16_t half = 0;
  memcpy(&half, bits_of_bf16, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T stored(float value);
template <>
float stored(float value) {
  return value;
}
template <>
Bf16 stored(float value) {
  return to_bf16(value);
}

// Returns the value that a packed panel holds for one element; the note in packed.h says where that lies, for
// a form of `planes` planes.
float packed_value(const char* block, int64_t planes, Side side, int64_t line, int64_t d) {
  const char* tile = block + line % 32 / 16 * kTileBytes;
  const auto word_at = [&](int64_t depth_word) {
    const int64_t row = side == Side::Left ? line % 16 : depth_word,
                  word = side == Side::Left ? depth_word : line % 16;
    return row * 64 + word * 4;
  };
  if (planes == 1) return widened(tile + word_at(d % 32 / 2) + d % 2 * 2);
  if (planes == 2) {
    float value = 0;
    memcpy(&value, tile + d % 32 / 16 * kPlaneBytes + word_at(d % 16), sizeof value);
    return value;
  }
  float sum = 0;
  for (int64_t plane = 0; plane < planes; ++plane) {
    sum += widened(tile + plane * kPlaneBytes + word_at(d % 16) + d % 32 / 16 * 2);
  }
  return sum;
}

template <class T>
void expect_packed(const Units<T>& units, Side side, bool is_depth_contiguous, int64_t lines, int64_t depth) {
  SCOPED_TRACE(::testing::Message() << name_of(units.isa) << (side == Side::Left ? " left " : " right ")
                                    << is_depth_contiguous << " " << lines << " x " << depth << " of "
                                    << sizeof(T) << " bytes");
  const int64_t stride = (is_depth_contiguous ? depth : lines) + 3;
  std::vector<T> from(static_cast<size_t>(stride * (is_depth_contiguous ? lines : depth)), stored<T>(-7));
  const auto value = [](int64_t line, int64_t d) {
    return static_cast<float>((line * 37 + d * 11) % 251 + 1);
  };
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t d = 0; d < depth; ++d) {
      from[is_depth_contiguous ? line * stride + d : d * stride + line] = stored<T>(value(line, d));
    }
  }
  const int64_t panels = panels_of(lines), blocks = blocks_of(depth), panel = blocks * units.block_bytes;
  const auto bytes = static_cast<size_t>(panels * panel);
  const std::unique_ptr<char, decltype(&std::free)> memory(static_cast<char*>(std::aligned_alloc(64, bytes)),
                                                           &std::free);
  memset(memory.get(), 0x5a, bytes);
  units.pack(side, Lines<T>{from.data(), stride, is_depth_contiguous}, lines, depth, memory.get(), panel);
  for (int64_t line = 0; line < panels * 32; ++line) {
    for (int64_t d = 0; d < blocks * 32; ++d) {
      const char* block = memory.get() + line / 32 * panel + d / 32 * units.block_bytes;
      const float got = packed_value(block, units.block_bytes / kPlaneBytes, side, line, d);
      ASSERT_EQ(got, line < lines && d < depth ? value(line, d) : 0.0f) << line << " " << d;
    }
  }
}

template <class T>
class Pack : public ::testing::Test {};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Pack, Elements);

TYPED_TEST(Pack, PutsEveryElementWhereTheUnitsReadIt) {
  const Units<TypeParam>* units = kernels::units<TypeParam>();
  if (units == nullptr) GTEST_SKIP() << tessera::testing::skip::kUnits;
  for (const Side side : {Side::Left, Side::Right}) {
    for (const bool is_depth_contiguous : {false, true}) {
      for (const int64_t lines : {1, 16, 31, 32, 70}) {
        for (const int64_t depth : {1, 2, 15, 17, 32, 33, 96}) {
          expect_packed(*units, side, is_depth_contiguous, lines, depth);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::ops::kernels
