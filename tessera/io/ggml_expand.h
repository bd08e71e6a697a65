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

// Expands Q2_K. A block holds: 16 bytes with a scale in the low and a minimum in the high four bits, 64 bytes
// of two bits, half d, half dmin. Each 32 of the bytes hold 128 elements in four runs of 32; one scale and
// one minimum serve 16 elements. The value is d * scale * q - dmin * minimum.
TESSERA_EXPAND void expand_q2_k(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 84, to += 256) {
    const float scale = load_half(from + 80), minimum = load_half(from + 82);
    for (int group = 0; group < 16; ++group) {
      const float d = scale * static_cast<float>(from[group] & 15);
      const float m = minimum * static_cast<float>(from[group] >> 4);
      const uint8_t* bits = from + 16 + group / 8 * 32 + group % 2 * 16;
      const int shift = group / 2 % 4 * 2;
      for (int i = 0; i < 16; ++i) to[group * 16 + i] = d * static_cast<float>(bits[i] >> shift & 3) - m;
    }
  }
}

// Expands Q3_K. A block holds: 32 bytes of high bits, of which bit k serves run k of 32 elements, 64 bytes of
// two bits in the order of Q2_K, 12 bytes with 16 scales of six bits (the low four bits of scales 0-7 and
// 8-15 in the halves of the first eight bytes, the high two in the last four), half d. The value is d *
// (scale - 32) * q, with 4 taken from q if its high bit is not set.
TESSERA_EXPAND void expand_q3_k(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 110, to += 256) {
    const float scale = load_half(from + 108);
    const uint8_t* packed = from + 96;
    for (int group = 0; group < 16; ++group) {
      const int low = packed[group % 8] >> (group / 8 * 4) & 15;
      const int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
      const float d = scale * static_cast<float>((low | high << 4) - 32);
      const uint8_t* bits = from + 32 + group / 8 * 32 + group % 2 * 16;
      const uint8_t* highs = from + group % 2 * 16;
      const int shift = group / 2 % 4 * 2;
      for (int i = 0; i < 16; ++i) {
        const int q = (bits[i] >> shift & 3) - ((highs[i] >> (group / 2) & 1) != 0 ? 0 : 4);
        to[group * 16 + i] = d * static_cast<float>(q);
      }
    }
  }
}

// The values of the codes of IQ4_NL and IQ4_XS.
inline constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of the codes of MXFP4 and NVFP4.
inline constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Expands `count` bytes of codes with values of a table: the low halves first, then the high ones.
TESSERA_EXPAND void expand_table(const int8_t* table, float scale, const uint8_t* codes, int count,
                                 float* to) {
  for (int i = 0; i < count; ++i) {
    to[i] = scale * static_cast<float>(table[codes[i] & 15]);
    to[i + count] = scale * static_cast<float>(table[codes[i] >> 4]);
  }
}

// Expands IQ4_NL. A block holds: half d, 16 bytes of codes. The value is d * table[code].
TESSERA_EXPAND void expand_iq4_nl(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 18, to += 32) {
    expand_table(kNonLinear, load_half(from), from + 2, 16, to);
  }
}

// Expands IQ4_XS. A block holds: half d, 16 bits with the high two bits of eight scales, 4 bytes with their
// low four bits, 128 bytes of codes. The value is d * (scale - 32) * table[code]; a scale serves 32 elements.
TESSERA_EXPAND void expand_iq4_xs(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 136, to += 256) {
    const float scale = load_half(from);
    const int highs = from[2] | from[3] << 8;
    for (int group = 0; group < 8; ++group) {
      const int low = from[4 + group / 2] >> (group % 2 * 4) & 15, high = highs >> (2 * group) & 3;
      const float d = scale * static_cast<float>((low | high << 4) - 32);
      expand_table(kNonLinear, d, from + 8 + group * 16, 16, to + group * 32);
    }
  }
}

// Expands MXFP4. A block holds: byte e, 16 bytes of codes. The value is 2^(e - 128) * table[code].
TESSERA_EXPAND void expand_mxfp4(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 17, to += 32) {
    const uint32_t e = from[0];
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    expand_table(kTwiceE2m1, std::bit_cast<float>(bits), from + 1, 16, to);
  }
}

// Expands NVFP4. A block holds: four scales in e4m3 without a sign, each for 16 elements, 32 bytes of codes.
// The value is half of scale * table[code]; the scale 0x7f counts as 0.
TESSERA_EXPAND void expand_nvfp4(const uint8_t* from, int64_t num_blocks, float* to) {
  for (int64_t block = 0; block < num_blocks; ++block, from += 36, to += 64) {
    for (int group = 0; group < 4; ++group) {
      const uint32_t code = from[group], exponent = code >> 3 & 15, fraction = code & 7;
      // Half of the scale: fraction * 2^-10, or (1 + fraction / 8) * 2^(exponent - 8).
      const float normal = std::bit_cast<float>((exponent + 119) << 23 | fraction << 20);
      const float half = exponent == 0 ? static_cast<float>(fraction) * 0x1p-10f : normal;
      expand_table(kTwiceE2m1, code == 0x7f ? 0.0f : half, from + 4 + group * 8, 8, to + group * 16);
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
    case GgmlType::Q2_K: return expand_q2_k(from, num_blocks, to);
    case GgmlType::Q3_K: return expand_q3_k(from, num_blocks, to);
    case GgmlType::IQ4_NL: return expand_iq4_nl(from, num_blocks, to);
    case GgmlType::IQ4_XS: return expand_iq4_xs(from, num_blocks, to);
    case GgmlType::MXFP4: return expand_mxfp4(from, num_blocks, to);
    case GgmlType::NVFP4: return expand_nvfp4(from, num_blocks, to);
  }
}

}  // namespace tessera::io::ggml
