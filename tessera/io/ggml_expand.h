// The loops that expand ggml's blocks, in a header so that they can be compiled for several instruction sets.
// Their numbers are those of ggml's reference only if products and sums are not fused (-ffp-contract=off).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "tessera/io/ggml_quants.h"

#if defined(__GNUC__)
#define TESSERA_EXPAND [[gnu::always_inline]] inline
#else
#define TESSERA_EXPAND inline
#endif

namespace tessera::io::ggml {

// Converts a half to a float without branches, so that loops over halves become vector code. The result is
// right also while the processor flushes denormals to zero.
TESSERA_EXPAND float half_to_float(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  const uint32_t exponent = magnitude & 0x0f800000;
  const uint32_t normal = magnitude + (exponent == 0x0f800000 ? (255u - 31u) << 23 : (127u - 15u) << 23);
  // A denormal half is its fraction times 2^-24: place it below 2^-14 and take 2^-14 away.
  const float denormal = std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
  const uint32_t bits = exponent == 0 ? std::bit_cast<uint32_t>(denormal) : normal;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000) << 16);
}

TESSERA_EXPAND float load_half(const uint8_t* from) {
  uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return half_to_float(half);
}

TESSERA_EXPAND void expand_f16(const uint8_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = load_half(from + 2 * i);
}

TESSERA_EXPAND void expand_bf16(const uint8_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    to[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
}

// Expands the formats of 32 elements. A block holds: half d, [half m], [32 fifth bits], and 16 bytes, of
// which byte i holds element i in its low and element i + 16 in its high four bits. The value is d * (q -
// kZero) + m.
template <int kZero, bool kHasMinimum, bool kHasFifthBit>
TESSERA_EXPAND void expand_legacy(const uint8_t* from, int64_t num_blocks, float* to) {
  constexpr int64_t kBits = kHasMinimum ? 4 : 2, kNibbles = kBits + (kHasFifthBit ? 4 : 0);
  for (int64_t block = 0; block < num_blocks; ++block, from += kNibbles + 16, to += 32) {
    const float scale = load_half(from);
    const float minimum = kHasMinimum ? load_half(from + 2) : 0.0f;
    uint32_t fifth = 0;
    if constexpr (kHasFifthBit) std::memcpy(&fifth, from + kBits, sizeof fifth);
    for (int i = 0; i < 16; ++i) {
      const int byte = from[kNibbles + i];
      int low = byte & 15, high = byte >> 4;
      if constexpr (kHasFifthBit) {
        low |= static_cast<int>((fifth >> i) & 1) << 4;
        high |= static_cast<int>((fifth >> (i + 16)) & 1) << 4;
      }
      to[i] = scale * static_cast<float>(low - kZero);
      to[i + 16] = scale * static_cast<float>(high - kZero);
      if constexpr (kHasMinimum) {
        to[i] += minimum;
        to[i + 16] += minimum;
      }
    }
  }
}

// Expands Q8_0. A block holds: half d, 32 signed bytes q. The value is d * q.
TESSERA_EXPAND void expand_q8_0(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 34, to += 32) {
    const float scale = load_half(from);
    for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(from[2 + i]));
  }
}

// Unpacks the 8 scales and 8 minimums of a K block, 6 bits each, from 12 bytes: the first four of both stand
// in the low six bits of bytes 0-7; the last four have their low bits in bytes 8-11, their high bits on top
// of bytes 0-7.
TESSERA_EXPAND void unpack_scales(const uint8_t* packed, int* scales, int* minimums) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 63;
    minimums[i] = packed[i + 4] & 63;
    scales[i + 4] = (packed[i + 8] & 15) | (packed[i] >> 6) << 4;
    minimums[i + 4] = packed[i + 8] >> 4 | (packed[i + 4] >> 6) << 4;
  }
}

// Expands Q4_K and Q5_K. A block holds: half d, half dmin, 12 bytes of scales and minimums, [32 bytes of
// fifth bits], 128 bytes of four bits. Each 32 of the last bytes hold 64 elements: the first 32 in their low,
// the last 32 in their high halves. The value is d * scale * q - dmin * minimum; one scale and one minimum
// serve 32 elements.
template <bool kHasFifthBit>
TESSERA_EXPAND void expand_q45_k(const uint8_t* from, int64_t num_blocks, float* to) {
  constexpr int64_t kFifth = 16, kNibbles = kHasFifthBit ? 48 : 16;
  for (int64_t block = 0; block < num_blocks; ++block, from += kNibbles + 128, to += 256) {
    const float scale = load_half(from), minimum = load_half(from + 2);
    int scales[8], minimums[8];
    unpack_scales(from + 4, scales, minimums);
    for (int group = 0; group < 8; ++group) {
      const float d = scale * static_cast<float>(scales[group]);
      const float m = minimum * static_cast<float>(minimums[group]);
      const uint8_t* nibbles = from + kNibbles + group / 2 * 32;
      const int shift = group % 2 * 4;
      float* out = to + group * 32;
      for (int i = 0; i < 32; ++i) {
        int q = nibbles[i] >> shift & 15;
        if constexpr (kHasFifthBit) q |= (from[kFifth + i] >> group & 1) << 4;
        out[i] = d * static_cast<float>(q) - m;
      }
    }
  }
}

// Expands Q6_K. A block holds: 128 bytes of low four bits, 64 bytes of high two bits, 16 signed scales, half
// d. Each half of the block (128 elements, 64 + 32 bytes) holds four runs of 32; each scale serves 16
// elements. The value is d * scale * (q - 32).
TESSERA_EXPAND void expand_q6_k(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 210, to += 256) {
    const float scale = load_half(from + 208);
    for (int run = 0; run < 8; ++run) {
      const int half = run / 4, quarter = run % 4;
      const uint8_t* low = from + half * 64 + quarter % 2 * 32;
      const uint8_t* high = from + 128 + half * 32;
      const int low_shift = quarter / 2 * 4, high_shift = quarter * 2;
      const uint8_t* scales = from + 192 + run * 2;
      float* out = to + run * 32;
      const float first = scale * static_cast<float>(static_cast<int8_t>(scales[0]));
      const float second = scale * static_cast<float>(static_cast<int8_t>(scales[1]));
      for (int i = 0; i < 32; ++i) {
        const int q = ((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32;
        out[i] = (i < 16 ? first : second) * static_cast<float>(q);
      }
    }
  }
}

// Expands blocks of any type.
TESSERA_EXPAND void expand(GgmlType type, const uint8_t* from, int64_t num_blocks, float* to) {
  switch (type) {
    case GgmlType::F32: std::memcpy(to, from, static_cast<size_t>(num_blocks) * 4); return;
    case GgmlType::F16: return expand_f16(from, num_blocks, to);
    case GgmlType::BF16: return expand_bf16(from, num_blocks, to);
    case GgmlType::Q4_0: return expand_legacy<8, false, false>(from, num_blocks, to);
    case GgmlType::Q4_1: return expand_legacy<0, true, false>(from, num_blocks, to);
    case GgmlType::Q5_0: return expand_legacy<16, false, true>(from, num_blocks, to);
    case GgmlType::Q5_1: return expand_legacy<0, true, true>(from, num_blocks, to);
    case GgmlType::Q8_0: return expand_q8_0(from, num_blocks, to);
    case GgmlType::Q4_K: return expand_q45_k<false>(from, num_blocks, to);
    case GgmlType::Q5_K: return expand_q45_k<true>(from, num_blocks, to);
    case GgmlType::Q6_K: return expand_q6_k(from, num_blocks, to);
  }
}

}  // namespace tessera::io::ggml
