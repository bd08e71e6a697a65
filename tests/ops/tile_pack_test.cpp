#include "tessera/ops/kernels/tile_pack.h"

#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/ops/kernels/tile_multiply.h"

namespace tessera::ops::kernels {
namespace {

constexpr int64_t kPlaneOf = 2 * kTileBytes;

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

// Each element of the packed panel, as the note in tile_pack.h says where it lies.
template <class T>
void expect_packed(Side side, bool is_depth_contiguous, int64_t lines, int64_t depth) {
  SCOPED_TRACE(testing::Message() << (side == Side::Left ? "left " : "right ") << is_depth_contiguous << " "
                                  << lines << " x " << depth << " of " << sizeof(T) << " bytes");
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
  const int64_t panels = (lines + 31) / 32, blocks = (depth + 31) / 32;
  const auto bytes = static_cast<size_t>(panels * panel_bytes<T>(depth));
  const std::unique_ptr<char, decltype(&std::free)> memory(static_cast<char*>(std::aligned_alloc(64, bytes)),
                                                           &std::free);
  memset(memory.get(), 0x5a, bytes);
  pack_lines(side, Lines<T>{from.data(), stride, is_depth_contiguous}, lines, depth, memory.get());
  for (int64_t line = 0; line < panels * 32; ++line) {
    for (int64_t d = 0; d < blocks * 32; ++d) {
      const char* tile = memory.get() + line / 32 * panel_bytes<T>(depth) + d / 32 * kBlockBytes<T> +
                         line % 32 / 16 * kTileBytes;
      // The pairs of depths are neighbours in bf16, 16 apart in floats.
      const int64_t pair = kPlanes<T> == 1 ? d % 32 / 2 : d % 16;
      const int64_t second = kPlanes<T> == 1 ? d % 2 : d % 32 / 16;
      const int64_t row = side == Side::Left ? line % 16 : pair, word = side == Side::Left ? pair : line % 16;
      float sum = 0;
      for (int64_t plane = 0; plane < kPlanes<T>; ++plane) {
        sum += widened(tile + plane * kPlaneOf + row * 64 + word * 4 + second * 2);
      }
      ASSERT_EQ(sum, line < lines && d < depth ? value(line, d) : 0.0f) << line << " " << d;
    }
  }
}

TEST(TilePack, PutsEveryElementWhereTheUnitsReadIt) {
  if (!has_tiles()) GTEST_SKIP() << "no tile units";
  for (const Side side : {Side::Left, Side::Right}) {
    for (const bool is_depth_contiguous : {false, true}) {
      for (const int64_t lines : {1, 16, 31, 32, 70}) {
        for (const int64_t depth : {1, 2, 15, 17, 32, 33, 96}) {
          expect_packed<float>(side, is_depth_contiguous, lines, depth);
          expect_packed<Bf16>(side, is_depth_contiguous, lines, depth);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::ops::kernels
