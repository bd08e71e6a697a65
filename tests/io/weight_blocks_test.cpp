#include "tessera/io/weight_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::io {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr BlockKind kKinds[] = {BlockKind::Nf4,     BlockKind::Fp4,  BlockKind::E2m1,    BlockKind::Int8,
                                BlockKind::LlmInt8, BlockKind::E4m3, BlockKind::Affine4, BlockKind::Affine8};

bool has_four_bits(BlockKind kind) {
  return kind == BlockKind::Nf4 || kind == BlockKind::Fp4 || kind == BlockKind::E2m1 ||
         kind == BlockKind::Affine4;
}

// The value of a code by the definition of its kind, without a scale.
double value_of(BlockKind kind, int code) {
  switch (kind) {
    case BlockKind::Int8: return static_cast<int8_t>(code);
    case BlockKind::LlmInt8: return static_cast<int8_t>(code) / 127.0;
    case BlockKind::E4m3: {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      const double size = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
      return code < 128 ? size : -size;
    }
    case BlockKind::Affine4:
    case BlockKind::Affine8: return code - 3;
    default: return code_table(kind)[code];
  }
}

TEST(WeightBlocks, HoldTheCodesThatAreWritten) {
  std::mt19937 random(5);
  for (const BlockKind kind : kKinds) {
    for (const int64_t elements : {1, 2, 3, 8, 40, 64, 256}) {
      const BlockForm form = block_form(kind, elements);
      SCOPED_TRACE(name_of(form));
      std::vector<uint8_t> codes(static_cast<size_t>(elements)), blocks(static_cast<size_t>(2 * form.bytes));
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % (has_four_bits(kind) ? 16 : 126));
      write_block(form, 0.25f, 3.0f, codes.data(), blocks.data());
      write_block(form, -2.0f, 3.0f, codes.data(), blocks.data() + form.bytes);
      std::vector<float> values(static_cast<size_t>(2 * elements));
      expand_blocks(form, blocks.data(), 2, values.data());
      for (size_t i = 0; i < codes.size(); ++i) {
        const double want = value_of(kind, codes[i]);
        EXPECT_FLOAT_EQ(values[i], static_cast<float>(0.25 * want)) << i;
        EXPECT_FLOAT_EQ(values[codes.size() + i], static_cast<float>(-2.0 * want)) << i;
      }
    }
  }
}

TEST(WeightBlocks, AreCutIntoSmallerOnesOfTheSameValues) {
  std::mt19937 random(6);
  for (const BlockKind kind : kKinds) {
    const BlockForm form = block_form(kind, 64), small = block_form(kind, 16);
    std::vector<uint8_t> codes(64), row(static_cast<size_t>(3 * form.bytes));
    for (int64_t block = 0; block < 3; ++block) {
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % (has_four_bits(kind) ? 16 : 126));
      write_block(form, 0.5f + static_cast<float>(block), 1.0f, codes.data(),
                  row.data() + block * form.bytes);
    }
    std::vector<float> all(192), part(96);
    expand_blocks(form, row.data(), 3, all.data());
    std::vector<uint8_t> cut(static_cast<size_t>(small.row_bytes(96)));
    split_blocks(form, row.data(), 48, 96, small, cut.data());
    expand_blocks(small, cut.data(), 6, part.data());
    EXPECT_EQ(part, std::vector<float>(all.begin() + 48, all.begin() + 144)) << name_of(form);
  }
}

// Every code is that of its own value, and a value half way between two takes the lower one, as
// bitsandbytes'.
TEST(FourBits, TakeTheNearestValue) {
  for (const BlockKind kind : {BlockKind::Nf4, BlockKind::Fp4}) {
    std::vector<float> table(code_table(kind), code_table(kind) + 16);
    std::vector<uint8_t> codes(16);
    code_in_four_bits(kind, table.data(), 16, 1.0f, false, codes.data());
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(table[codes[i]], table[i]);
    std::sort(table.begin(), table.end());
    for (size_t i = 0; i + 1 < 16; ++i) {
      const float tie = (table[i] + table[i + 1]) * 0.5f, above = std::nextafter(tie, 2.0f);
      uint8_t code;
      code_in_four_bits(kind, &tie, 1, 1.0f, false, &code);
      EXPECT_EQ(code_table(kind)[code], table[i]);
      code_in_four_bits(kind, &above, 1, 1.0f, false, &code);
      EXPECT_EQ(code_table(kind)[code], table[i + 1]);
    }
  }
}

TEST(FourBits, TakeZerosForZeros) {
  const std::vector<float> zeros(64, 0.0f);
  std::vector<uint8_t> codes(64, 1);
  code_in_four_bits(BlockKind::Nf4, zeros.data(), 64, 0.0f, false, codes.data());
  EXPECT_THAT(codes, Each(7));
}

// The map of bitsandbytes 0.50.2 with the AVX2 build of torch 2.11 (FNV-1a over its bytes).
TEST(DynamicMap, HasTheValuesOfBitsandbytes) {
  const float* const map = dynamic_map();
  EXPECT_TRUE(std::is_sorted(map, map + 256));
  EXPECT_EQ(map[127], 0.0f);
  EXPECT_EQ(map[255], 1.0f);
  EXPECT_FLOAT_EQ(map[0], -0.99296874f);
  EXPECT_FLOAT_EQ(map[128], 5.5e-7f);
  EXPECT_FLOAT_EQ(map[131], 2.125e-5f);
  EXPECT_FLOAT_EQ(map[254], 0.99296874f);
}

TEST(ScalesOfScales, AreCloseAndExactWhereTheMapIs) {
  std::vector<float> scales(600);
  std::mt19937 random(7);
  for (float& scale : scales) scale = 0.5f + static_cast<float>(random() % 1000) / 1000.0f;
  const std::vector<float> exact = scales;
  quantize_scales(scales);
  for (size_t i = 0; i < scales.size(); ++i) EXPECT_NEAR(scales[i], exact[i], 0.012);
  EXPECT_NE(scales, exact);
  std::vector<float> equal(300, 0.75f);
  quantize_scales(equal);
  EXPECT_THAT(equal, Each(0.75f));
}

}  // namespace
}  // namespace tessera::io
