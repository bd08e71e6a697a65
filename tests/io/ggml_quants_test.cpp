#include "tessera/io/ggml_quants.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/io/file.h"
#include "tessera/io/ggml_quantize.h"
#include "tessera/io/gguf.h"

#include "tests/testing/paths.h"

namespace tessera::io {
namespace {

const std::string kReference = testing::source_folder() + "/tests/reference/data/gguf/";

std::vector<float> expected_values(const std::string& type) {
  const std::string bytes = read_file(kReference + type + ".f32", 1 << 20);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class ReferenceTest : public ::testing::TestWithParam<std::pair<const char*, GgmlType>> {};

// The expected values are random blocks that the gguf package has expanded: every bit must agree.
TEST_P(ReferenceTest, EqualsTheReferenceBitForBit) {
  const auto& [name, type] = GetParam();
  const std::vector<float> expected = expected_values(name);
  const GgufFile file = GgufFile::open(kReference + name + ".gguf");
  ASSERT_EQ(file.tensors().size(), 2u);
  size_t base = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    EXPECT_EQ(tensor.type, type);
    std::vector<float> values(static_cast<size_t>(tensor.numel()));
    file.read_f32(tensor, 0, tensor.num_rows(), values.data());
    ASSERT_LE(base + values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[base + i]))
          << tensor.name << " element " << i << ": " << values[i] << " against " << expected[base + i];
    }
    // Every range of rows gives the same numbers, and touches nothing else.
    const int64_t row = tensor.row_elements();
    for (int64_t first = 0; first < tensor.num_rows(); ++first) {
      for (int64_t count = 0; first + count <= tensor.num_rows(); ++count) {
        std::vector<float> part(static_cast<size_t>(count * row) + 1, -7.5f);
        file.read_f32(tensor, first, count, part.data());
        EXPECT_EQ(std::memcmp(part.data(), values.data() + first * row, static_cast<size_t>(count * row) * 4),
                  0);
        EXPECT_EQ(part.back(), -7.5f);
      }
    }
    base += values.size();
  }
  EXPECT_EQ(base, expected.size());
}

INSTANTIATE_TEST_SUITE_P(
    Types, ReferenceTest,
    ::testing::Values(std::pair{"f32", GgmlType::F32}, std::pair{"f16", GgmlType::F16},
                      std::pair{"bf16", GgmlType::BF16}, std::pair{"q4_0", GgmlType::Q4_0},
                      std::pair{"q4_1", GgmlType::Q4_1}, std::pair{"q5_0", GgmlType::Q5_0},
                      std::pair{"q5_1", GgmlType::Q5_1}, std::pair{"q8_0", GgmlType::Q8_0},
                      std::pair{"q4_k", GgmlType::Q4_K}, std::pair{"q5_k", GgmlType::Q5_K},
                      std::pair{"q6_k", GgmlType::Q6_K}, std::pair{"q2_k", GgmlType::Q2_K},
                      std::pair{"q3_k", GgmlType::Q3_K}, std::pair{"iq4_nl", GgmlType::IQ4_NL},
                      std::pair{"iq4_xs", GgmlType::IQ4_XS}, std::pair{"mxfp4", GgmlType::MXFP4},
                      std::pair{"nvfp4", GgmlType::NVFP4}),
    [](const auto& info) { return std::string(info.param.first); });

TEST(GgmlQuantsTest, EveryHalfHasItsValue) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  dequantize_ggml(GgmlType::F16, halves.data(), 65536, values.data());
  for (int bits = 0; bits < 65536; ++bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits >> 15 ? -1.0f : 1.0f;
    const float value = values[static_cast<size_t>(bits)];
    EXPECT_EQ(std::signbit(value), bits >> 15 == 1) << bits;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), fraction != 0) << bits;
      EXPECT_EQ(std::isinf(value), fraction == 0) << bits;
    } else if (exponent == 0) {
      EXPECT_EQ(value, sign * std::ldexp(static_cast<float>(fraction), -24)) << bits;
    } else {
      EXPECT_EQ(value, sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)) << bits;
    }
  }
}

TEST(GgmlQuantsTest, NamesAndSizes) {
  EXPECT_EQ(ggml_type_name(12), "Q4_K");
  EXPECT_EQ(ggml_type_name(30), "BF16");
  EXPECT_EQ(ggml_type_name(16), "IQ2_XXS");
  EXPECT_EQ(ggml_type_name(39), "MXFP4");
  EXPECT_EQ(ggml_type_name(4), "type 4");
  EXPECT_EQ(ggml_type_name(UINT32_MAX), "type 4294967295");
  EXPECT_FALSE(parse_ggml_type(4));
  EXPECT_FALSE(parse_ggml_type(16));
  EXPECT_FALSE(parse_ggml_type(41));
  EXPECT_EQ(ggml_type_name(41), "Q1_0");
  EXPECT_FALSE(expands_on_devices(GgmlType::Q2_K));
  EXPECT_TRUE(expands_on_devices(GgmlType::Q6_K));
  EXPECT_FALSE(parse_ggml_type(UINT32_MAX));
  EXPECT_EQ(parse_ggml_type(14), GgmlType::Q6_K);
  EXPECT_EQ(ggml_block_elements(GgmlType::Q6_K), 256);
  EXPECT_EQ(ggml_block_bytes(GgmlType::Q6_K), 210);
  EXPECT_EQ(ggml_block_bytes(GgmlType::Q4_1), 20);
}

// FNV-1a of 64 bits.
uint64_t hash_of(const std::vector<char>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

// The hashes are of the blocks that quantize_row_<type>_ref() of llama.cpp makes of the same values, for
// which xllamacpp 2026.10 was called.
TEST(GgmlQuantize, BlocksAreThoseOfLlamaCpp) {
  std::vector<float> values(64 * 256);
  uint32_t state = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525 + 1013904223;
    const float value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    values[i] = value * value * value * static_cast<float>(1 + i / 256 % 7);
  }
  for (const auto& [type, hash] : {std::pair(GgmlType::Q4_0, 0x8b44caef7d2fb7d5),
                                   {GgmlType::Q5_0, 0xecd3362f85595cdf},
                                   {GgmlType::Q8_0, 0x9930ed5cbb6981c5},
                                   {GgmlType::Q4_K, 0x1ef74c49537f509d},
                                   {GgmlType::Q6_K, 0x81eede4588d2bdd9}}) {
    const int64_t num_blocks = static_cast<int64_t>(values.size()) / ggml_block_elements(type);
    std::vector<char> blocks(static_cast<size_t>(num_blocks * ggml_block_bytes(type)), 'x');
    quantize_ggml(type, values.data(), num_blocks, blocks.data());
    EXPECT_EQ(hash_of(blocks), hash) << ggml_type_name(static_cast<uint32_t>(type));
  }
}

TEST(GgmlQuantize, ZerosAndTinyValuesBecomeZeros) {
  for (const GgmlType type : {GgmlType::F32, GgmlType::F16, GgmlType::BF16, GgmlType::Q4_0, GgmlType::Q5_0,
                              GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::Q6_K}) {
    for (const float value : {0.0f, 1e-42f, -1e-42f}) {
      const int64_t count = ggml_block_elements(type);
      const std::vector<float> values(static_cast<size_t>(count), value);
      std::vector<float> read(values.size(), 1.0f);
      std::vector<char> block(static_cast<size_t>(ggml_block_bytes(type)), 'x');
      quantize_ggml(type, values.data(), 1, block.data());
      dequantize_ggml(type, block.data(), 1, read.data());
      for (const float got : read)
        EXPECT_NEAR(got, 0.0f, 1e-41f) << ggml_type_name(static_cast<uint32_t>(type));
    }
  }
}

}  // namespace
}  // namespace tessera::io
