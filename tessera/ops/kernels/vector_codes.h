// The codes of sixteen rows of a coded weight, as small integers with scales, for each kind of vector unit.
// Included by units_*.cpp after vec_*.h; TESSERA_VEC names that header's namespace.
//
// [Note: parts of codes] Expanding a weight to floats in memory costs a layer of few rows more than the
// product does. So the codes of 16 rows by 256 depths become bytes, or stay the bytes that they are, and one
// float for each row and run of depths; a square of them is turned as bytes, and becomes floats in registers.
// The values are those of io::ggml::expand(), to the last bit.
#pragma once

#include "tessera/io/ggml_expand.h"
#include "tessera/ops/kernels/coded_matrix.h"

namespace tessera::ops::kernels::TESSERA_VEC {

inline constexpr int64_t kCodeRows = 16, kPartCodes = 256;

// A part of 16 rows. Its form says how code, scale and offset make a value.
struct CodePart {
  const uint8_t* blocks[kCodeRows];  // the first block of each row's part
  int64_t num_blocks, elements;      // of a block
  const int8_t* codes[kCodeRows];    // of each row
  int64_t run_stride;                // between the codes of two runs of a row
  alignas(64) float scales[kPartCodes / 16][kCodeRows];
  alignas(64) float offsets[kPartCodes / 16][kCodeRows];
  alignas(64) int8_t bytes[kCodeRows][kPartCodes];  // room for codes that are not bytes where they lie
};

// Lets the codes of all rows be those in `bytes`, in runs of `run` depths.
TESSERA_INLINE void take_bytes(CodePart& part, int64_t run) {
  for (int64_t row = 0; row < kCodeRows; ++row) part.codes[row] = part.bytes[row];
  part.run_stride = run;
}

// Writes to[block][row] the halves that lie `at` bytes behind the beginning of each block, as floats. All are
// gathered before the first one is read again: a vector that is loaded from what was just stored word by word
// waits for it.
template <int64_t MostBlocks>
TESSERA_INLINE void read_halves(const CodePart& part, int64_t block_bytes, int64_t at,
                                float (&to)[kPartCodes / 16][kCodeRows]) {
  F16 halves[MostBlocks][kCodeRows];
  const int64_t blocks = std::min(part.num_blocks, MostBlocks);
  for (int64_t row = 0; row < kCodeRows; ++row) {
    const uint8_t* from = part.blocks[row] + at;
    for (int64_t block = 0; block < blocks; ++block, from += block_bytes)
      memcpy(&halves[block][row], from, sizeof(F16));
  }
  for (int64_t block = 0; block < blocks; ++block) store(to[block], load(halves[block], first_of(kCodeRows)));
}

TESSERA_INLINE __m128i load_bytes(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
TESSERA_INLINE void store_bytes(void* to, __m128i bytes) {
  _mm_storeu_si128(static_cast<__m128i*>(to), bytes);
}
TESSERA_INLINE __m256i load_32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
TESSERA_INLINE void store_32(void* to, __m256i bytes) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), bytes);
}
// Returns in each byte the bits of the mask, once it is shifted to the right.
TESSERA_INLINE __m256i bits_of(__m256i bytes, int shift, char mask) {
  return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8(mask));
}

// A value is code * scale.
struct ScaledCode {
  static constexpr bool kHasOffset = false;
  TESSERA_INLINE Vec value(const int8_t* codes, Vec scale, Vec) { return mul(load_codes(codes), scale); }
};
// A value is code * scale - offset.
struct OffsetCode {
  static constexpr bool kHasOffset = true;
  TESSERA_INLINE Vec value(const int8_t* codes, Vec scale, Vec offset) {
    return sub(rounded_product(load_codes(codes), scale), offset);
  }
};

// Each form of code says how long its runs are and what the values are, and fills a part. The layout of
// ggml's blocks is told in io/ggml_expand.h.

struct BytesOf8 : ScaledCode {  // Q8_0
  static constexpr int64_t kRun = 32;
  TESSERA_INLINE void read(CodePart& part) {
    read_halves<kPartCodes / 32>(part, 34, 0, part.scales);
    for (int64_t row = 0; row < kCodeRows; ++row)
      part.codes[row] = reinterpret_cast<const int8_t*>(part.blocks[row] + 2);
    part.run_stride = 34;
  }
};

template <int kZero, bool kHasMinimum, bool kHasFifthBit>
struct LegacyNibbles : std::conditional_t<kHasMinimum, OffsetCode, ScaledCode> {  // Q4_0, Q4_1, Q5_0, Q5_1
  static constexpr int64_t kRun = 32;
  TESSERA_INLINE void read(CodePart& part) {
    constexpr int64_t kBits = kHasMinimum ? 4 : 2, kNibbles = kBits + (kHasFifthBit ? 4 : 0);
    take_bytes(part, kRun);
    read_halves<kPartCodes / 32>(part, kNibbles + 16, 0, part.scales);
    if constexpr (kHasMinimum) read_halves<kPartCodes / 32>(part, kNibbles + 16, 2, part.offsets);
    for (int64_t block = 0; block < part.num_blocks; ++block) {
      const int64_t at = block * (kNibbles + 16);
      if constexpr (kHasMinimum) store(part.offsets[block], sub(zero(), load(part.offsets[block])));
      for (int64_t row = 0; row < kCodeRows; ++row) {
        const uint8_t* const from = part.blocks[row] + at;
        // The low halves of the bytes come first, then the high ones.
        const __m256i both = _mm256_broadcastsi128_si256(load_bytes(from + kNibbles));
        __m256i code = bits_of(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), 0, 15);
        if constexpr (kHasFifthBit) code = _mm256_or_si256(code, fifth_bits(from + kBits));
        if constexpr (kZero != 0) code = _mm256_sub_epi8(code, _mm256_set1_epi8(kZero));
        store_32(part.bytes[row] + block * 32, code);
      }
    }
  }

 private:
  // Returns 16 in each byte whose bit of the 32 at `from` is set.
  TESSERA_INLINE __m256i fifth_bits(const uint8_t* from) {
    int32_t word;
    memcpy(&word, from, sizeof word);
    const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(word), places);
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16));
  }
};

template <bool kHasFifthBit>
struct NibblesOfK : OffsetCode {  // Q4_K, Q5_K
  static constexpr int64_t kRun = 32;
  TESSERA_INLINE void read(CodePart& part) {
    constexpr int64_t kFifth = 16, kNibbles = kHasFifthBit ? 48 : 16;
    take_bytes(part, kRun);
    read_scales(part);
    for (int64_t row = 0; row < kCodeRows; ++row) {
      const uint8_t* const from = part.blocks[row];
      int8_t* const to = part.bytes[row];
      const __m256i fifth = kHasFifthBit ? load_32(from + kFifth) : __m256i{};
      for (int pair = 0; pair < 4; ++pair) {
        const __m256i nibbles = load_32(from + kNibbles + pair * 32);
        __m256i low = bits_of(nibbles, 0, 15), high = bits_of(nibbles, 4, 15);
        if constexpr (kHasFifthBit) {
          low = _mm256_or_si256(low, _mm256_slli_epi16(bits_of(fifth, 2 * pair, 1), 4));
          high = _mm256_or_si256(high, _mm256_slli_epi16(bits_of(fifth, 2 * pair + 1, 1), 4));
        }
        store_32(to + pair * 64, low);
        store_32(to + pair * 64 + 32, high);
      }
    }
  }

 private:
  TESSERA_INLINE void read_scales(CodePart& part) {
    alignas(64) float scale[kPartCodes / 16][kCodeRows], minimum[kPartCodes / 16][kCodeRows];
    read_halves<1>(part, 0, 0, scale);
    read_halves<1>(part, 0, 2, minimum);
    alignas(64) uint32_t words[3][kCodeRows];
    for (int64_t row = 0; row < kCodeRows; ++row) {
      for (int64_t word = 0; word < 3; ++word)
        memcpy(&words[word][row], part.blocks[row] + 4 + word * 4, sizeof(uint32_t));
    }
    for (int i = 0; i < 4; ++i) {
      const int shift = 8 * i;
#pragma omp simd
      for (int64_t row = 0; row < kCodeRows; ++row) {
        const uint32_t a = words[0][row] >> shift, b = words[1][row] >> shift, c = words[2][row] >> shift;
        const auto number = [](uint32_t x) { return static_cast<float>(static_cast<int32_t>(x)); };
        part.scales[i][row] = scale[0][row] * number(a & 63);
        part.offsets[i][row] = minimum[0][row] * number(b & 63);
        part.scales[i + 4][row] = scale[0][row] * number((c & 15) | (a >> 6 & 3) << 4);
        part.offsets[i + 4][row] = minimum[0][row] * number((c >> 4 & 15) | (b >> 6 & 3) << 4);
      }
    }
  }
};

// Writes scales[i][row] = the half at `at` of the row's block * small[row][i].
TESSERA_INLINE void multiply_scales(const CodePart& part, int64_t at, const int8_t (&small)[kCodeRows][16],
                                    float (&scales)[kPartCodes / 16][kCodeRows]) {
  const int8_t* rows[kCodeRows];
  for (int64_t row = 0; row < kCodeRows; ++row) rows[row] = small[row];
  alignas(64) int8_t turned[16][kCodeRows];
  turn_codes(rows, 0, turned);
  read_halves<1>(part, 0, at, scales);
  const Vec factor = load(scales[0]);
  for (int64_t i = 0; i < 16; ++i) store(scales[i], mul(factor, load_codes(turned[i])));
}

struct SixBitsOfK : ScaledCode {  // Q6_K
  static constexpr int64_t kRun = 16;
  TESSERA_INLINE void read(CodePart& part) {
    take_bytes(part, kRun);
    int8_t small[kCodeRows][16];
    for (int64_t row = 0; row < kCodeRows; ++row) {
      const uint8_t* const from = part.blocks[row];
      memcpy(small[row], from + 192, 16);
      for (int run = 0; run < 8; ++run) {
        const int half = run / 4, quarter = run % 4;
        const __m256i low = load_32(from + half * 64 + quarter % 2 * 32),
                      high = load_32(from + 128 + half * 32);
        const __m256i code = _mm256_or_si256(bits_of(low, quarter / 2 * 4, 15),
                                             _mm256_slli_epi16(bits_of(high, quarter * 2, 3), 4));
        store_32(part.bytes[row] + run * 32, _mm256_sub_epi8(code, _mm256_set1_epi8(32)));
      }
    }
    multiply_scales(part, 208, small, part.scales);
  }
};

// Returns codes [32 run, 32 run + 32) of the 256 of two bits in a block of Q2_K or Q3_K.
TESSERA_INLINE __m256i two_bits(const uint8_t* bits, int run) {
  return bits_of(load_32(bits + run / 4 * 32), run % 4 * 2, 3);
}

struct TwoBitsOfK : OffsetCode {  // Q2_K
  static constexpr int64_t kRun = 16;
  TESSERA_INLINE void read(CodePart& part) {
    take_bytes(part, kRun);
    int8_t scales[kCodeRows][16], minimums[kCodeRows][16];
    for (int64_t row = 0; row < kCodeRows; ++row) {
      const uint8_t* const from = part.blocks[row];
      for (int64_t i = 0; i < 16; ++i) {
        scales[row][i] = static_cast<int8_t>(from[i] & 15);
        minimums[row][i] = static_cast<int8_t>(from[i] >> 4);
      }
      for (int run = 0; run < 8; ++run) store_32(part.bytes[row] + run * 32, two_bits(from + 16, run));
    }
    multiply_scales(part, 80, scales, part.scales);
    multiply_scales(part, 82, minimums, part.offsets);
  }
};

struct ThreeBitsOfK : ScaledCode {  // Q3_K
  static constexpr int64_t kRun = 16;
  TESSERA_INLINE void read(CodePart& part) {
    take_bytes(part, kRun);
    int8_t scales[kCodeRows][16];
    for (int64_t row = 0; row < kCodeRows; ++row) {
      const uint8_t *const from = part.blocks[row], *const packed = from + 96;
      for (int64_t i = 0; i < 16; ++i) {
        const int low = packed[i % 8] >> (i / 8 * 4) & 15, high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        scales[row][i] = static_cast<int8_t>((low | high << 4) - 32);
      }
      const __m256i highs = load_32(from);
      for (int run = 0; run < 8; ++run) {
        // A code is 4 less where its bit is not set.
        const __m256i four =
            _mm256_slli_epi16(bits_of(_mm256_xor_si256(highs, _mm256_set1_epi8(-1)), run, 1), 2);
        store_32(part.bytes[row] + run * 32, _mm256_sub_epi8(two_bits(from + 32, run), four));
      }
    }
    multiply_scales(part, 108, scales, part.scales);
  }
};

// Looks 16 bytes of codes up: the low halves make the first sixteen values, the high ones the others.
TESSERA_INLINE void look_up_codes(const int8_t* table, const uint8_t* codes, int8_t* to) {
  const __m128i values = load_bytes(table), both = load_bytes(codes), mask = _mm_set1_epi8(15);
  store_bytes(to, _mm_shuffle_epi8(values, _mm_and_si128(both, mask)));
  store_bytes(to + 16, _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(both, 4), mask)));
}

struct NonLinear : ScaledCode {  // IQ4_NL
  static constexpr int64_t kRun = 32;
  TESSERA_INLINE void read(CodePart& part) {
    take_bytes(part, kRun);
    read_halves<kPartCodes / 32>(part, 18, 0, part.scales);
    for (int64_t block = 0; block < part.num_blocks; ++block) {
      for (int64_t row = 0; row < kCodeRows; ++row)
        look_up_codes(io::ggml::kNonLinear, part.blocks[row] + block * 18 + 2, part.bytes[row] + block * 32);
    }
  }
};

struct NonLinearOfK : ScaledCode {  // IQ4_XS
  static constexpr int64_t kRun = 32;
  TESSERA_INLINE void read(CodePart& part) {
    take_bytes(part, kRun);
    int8_t scales[kCodeRows][16] = {};
    for (int64_t row = 0; row < kCodeRows; ++row) {
      const uint8_t* const from = part.blocks[row];
      const int highs = from[2] | from[3] << 8;
      for (int group = 0; group < 8; ++group) {
        const int low = from[4 + group / 2] >> (group % 2 * 4) & 15, high = highs >> (2 * group) & 3;
        scales[row][group] = static_cast<int8_t>((low | high << 4) - 32);
        look_up_codes(io::ggml::kNonLinear, from + 8 + group * 16, part.bytes[row] + group * 32);
      }
    }
    multiply_scales(part, 0, scales, part.scales);
  }
};

struct Microscaled : ScaledCode {  // MXFP4
  static constexpr int64_t kRun = 32;
  TESSERA_INLINE void read(CodePart& part) {
    take_bytes(part, kRun);
    for (int64_t block = 0; block < part.num_blocks; ++block) {
      for (int64_t row = 0; row < kCodeRows; ++row) {
        const uint8_t* const from = part.blocks[row] + block * 17;
        const uint32_t e = from[0];
        part.scales[block][row] = float_of(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        look_up_codes(io::ggml::kTwiceE2m1, from + 1, part.bytes[row] + block * 32);
      }
    }
  }
};

// The forms of io/weight_blocks.h with a float32 scale, and a zero, before the codes of a block, whose number
// of elements is a multiple of 16 and divides 256. All codes become bytes.
template <io::BlockKind kKind>
struct FloatScaled {
  static constexpr int64_t kRun = 16;
  static constexpr bool kHasZero = io::has_zero(kKind);
  static constexpr bool kHasTable =
      kKind == io::BlockKind::Nf4 || kKind == io::BlockKind::Fp4 || kKind == io::BlockKind::E2m1;
  static constexpr bool kHasOffset = kHasZero || kHasTable;  // a zero for each row, or the sixteen values
  static constexpr bool kAreNibbles = kHasTable || kKind == io::BlockKind::Affine4;

  TESSERA_INLINE Vec value(const int8_t* codes, Vec scale, Vec offset) {
    if constexpr (kHasTable) return mul(looked_up(offset, codes), scale);
    if constexpr (kKind == io::BlockKind::LlmInt8)
      return mul(rounded_product(load_codes(codes), scale), all(1.0f / 127.0f));
    if constexpr (kHasZero) return mul(sub(load_unsigned_codes(codes), offset), scale);
    return mul(load_codes(codes), scale);
  }

  TESSERA_INLINE void read(CodePart& part) {
    take_bytes(part, kRun);
    if constexpr (kHasTable) {
      const Vec table = load(io::code_table(kKind));
      for (auto& values : part.offsets) store(values, table);
    }
    const int64_t elements = part.elements, codes_at = kHasZero ? 8 : 4;
    const int64_t block_bytes = codes_at + (kAreNibbles ? elements / 2 : elements);
    for (int64_t row = 0; row < kCodeRows; ++row) {
      const uint8_t* from = part.blocks[row];
      for (int64_t block = 0; block < part.num_blocks; ++block, from += block_bytes) {
        float scale, zero = 0.0f;
        memcpy(&scale, from, sizeof scale);
        if constexpr (kHasZero) memcpy(&zero, from + 4, sizeof zero);
        int8_t* const to = part.bytes[row] + block * elements;
        for (int64_t i = 0; i < elements; i += kRun) {
          const int64_t run = (block * elements + i) / kRun;
          part.scales[run][row] = scale;
          if constexpr (kHasZero) part.offsets[run][row] = zero;
          if constexpr (kAreNibbles) {
            store_bytes(to + i, spread_nibbles(from + codes_at + i / 2));
          } else {
            store_bytes(to + i, load_bytes(from + codes_at + i));
          }
        }
      }
    }
  }

 private:
  // Returns sixteen codes of four bits, of which two share a byte, the first one in its low half.
  TESSERA_INLINE __m128i spread_nibbles(const uint8_t* from) {
    const __m128i both = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)), mask = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16(both, 4), mask));
  }
};

}  // namespace tessera::ops::kernels::TESSERA_VEC
