// Vectors of sixteen floats in two AVX2 registers: the operations of vec_avx512.h for processors that have
// only these. Included once, after #pragma GCC target, by a source of its own.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "tessera/ops/kernels/packed.h"
#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels::avx2 {

struct Vec {
  __m256 low, high;
};
using Mask = uint16_t;  // a bit for each float

// How products of panels fill the registers: vectors in a row of C, and rows at a time.
inline constexpr int64_t kVecsOfProduct = 1;
inline constexpr int64_t kRowGroups[] = {6, 5, 5, 6, 5, 5};  // groups of a panel's 32 lines
inline constexpr int64_t kRowsFromMemory = 0;                // no instruction repeats a word from memory

// Returns the mask of the first n elements: all of them if n is more, none if it is negative.
TESSERA_INLINE Mask first_of(int64_t n) {
  return n >= 16 ? Mask{0xffff} : static_cast<Mask>((1 << std::max<int64_t>(n, 0)) - 1);
}
// Returns all bits of the words that the mask names, of eight words from its bit `first` on.
TESSERA_INLINE __m256i words_of(Mask mask, int first) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask >> first), bits), bits);
}
TESSERA_INLINE Mask mask_of(__m256 low, __m256 high) {
  return static_cast<Mask>(_mm256_movemask_ps(low) | _mm256_movemask_ps(high) << 8);
}

TESSERA_INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
TESSERA_INLINE Vec all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
TESSERA_INLINE Vec load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
TESSERA_INLINE void store(float* to, Vec x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}
// Load and store the elements of the mask; the others are loaded as zeros, and nothing of them is read or
// written.
TESSERA_INLINE Vec load(const float* from, Mask mask) {
  return {_mm256_maskload_ps(from, words_of(mask, 0)), _mm256_maskload_ps(from + 8, words_of(mask, 8))};
}
TESSERA_INLINE void store(float* to, Mask mask, Vec x) {
  // AMD's processors before the fifth generation take about 20 cycles for a masked store.
  if (mask == 0xffff) return store(to, x);
  _mm256_maskstore_ps(to, words_of(mask, 0), x.low);
  _mm256_maskstore_ps(to + 8, words_of(mask, 8), x.high);
}

// Do the same for bf16, for the masks of first_of() alone. Of load_lanes() and store_lanes() (lanes.h) the
// compiler makes more than twice the code here.
TESSERA_INLINE __m256 widened(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
TESSERA_INLINE Vec load(const Bf16* from, Mask mask) {
  Bf16 padded[16];
  if (mask != 0xffff) {
    memset(padded, 0, sizeof padded);
    memcpy(padded, from, sizeof(Bf16) * static_cast<size_t>(std::popcount(mask)));
    from = padded;
  }
  const auto* halves = reinterpret_cast<const __m128i*>(from);
  return {widened(_mm_loadu_si128(halves)), widened(_mm_loadu_si128(halves + 1))};
}
// Returns the nearest bf16, ties to even, in the low half of each word; NaN stays NaN.
TESSERA_INLINE __m256i rounded(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i nearest =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  return _mm256_blendv_epi8(nearest, _mm256_set1_epi32(0x7fc0),
                            _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
TESSERA_INLINE void store(Bf16* to, Mask mask, Vec x) {
  // Packing takes the words of both registers in turns of four, which the permutation puts in order.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded(x.low), rounded(x.high)), 0xd8);
  if (mask == 0xffff) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
  Bf16 padded[16];
  memcpy(padded, &packed, sizeof padded);
  memcpy(to, padded, sizeof(Bf16) * static_cast<size_t>(std::popcount(mask)));
}

// Do the same for float16.
TESSERA_INLINE Vec load(const F16* from, Mask mask) {
  F16 padded[16];
  if (mask != 0xffff) {
    memset(padded, 0, sizeof padded);
    memcpy(padded, from, sizeof(F16) * static_cast<size_t>(std::popcount(mask)));
    from = padded;
  }
  const auto* halves = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
TESSERA_INLINE void store(F16* to, Mask mask, Vec x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m128i halves[2] = {_mm256_cvtps_ph(x.low, kNearest), _mm256_cvtps_ph(x.high, kNearest)};
  memcpy(to, halves, sizeof(F16) * static_cast<size_t>(std::popcount(mask)));
}

TESSERA_INLINE Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
TESSERA_INLINE Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
TESSERA_INLINE Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
TESSERA_INLINE Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
TESSERA_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
TESSERA_INLINE Vec multiply_add_from(const float* a, Vec b, Vec c) { return multiply_add(all(*a), b, c); }
TESSERA_INLINE Vec multiply_sub(Vec a, Vec b, Vec c) {
  return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
}
// Return b if one of the two is not a number.
TESSERA_INLINE Vec larger(Vec a, Vec b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
TESSERA_INLINE Vec smaller(Vec a, Vec b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
TESSERA_INLINE Vec chosen(Mask mask, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_castsi256_ps(words_of(mask, 0))),
          _mm256_blendv_ps(no.high, yes.high, _mm256_castsi256_ps(words_of(mask, 8)))};
}
TESSERA_INLINE Vec kept(Mask mask, Vec x) { return chosen(mask, x, zero()); }
TESSERA_INLINE Mask is_not_less(Vec a, Vec b) {
  return mask_of(_mm256_cmp_ps(a.low, b.low, _CMP_NLT_UQ), _mm256_cmp_ps(a.high, b.high, _CMP_NLT_UQ));
}
TESSERA_INLINE Mask is_not_equal(Vec a, Vec b) {
  return mask_of(_mm256_cmp_ps(a.low, b.low, _CMP_NEQ_UQ), _mm256_cmp_ps(a.high, b.high, _CMP_NEQ_UQ));
}
TESSERA_INLINE Vec nearest_integer(Vec x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}
// Returns x 2^n for whole n from -126 to 0, for x in [1/2, 2) or not a number.
TESSERA_INLINE __m256 times_power(__m256 x, __m256 n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
}
TESSERA_INLINE Vec times_power(Vec x, Vec n) {
  return {times_power(x.low, n.low), times_power(x.high, n.high)};
}
// Return e and m in [1, 2) of a positive normal number x = m 2^e; for other numbers, one of the two is not a
// number.
TESSERA_INLINE __m256 exponent_of(__m256 x) {
  const __m256i biased = _mm256_srli_epi32(_mm256_castps_si256(x), 23);
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(biased, _mm256_set1_epi32(127)));
}
TESSERA_INLINE Vec exponent_of(Vec x) { return {exponent_of(x.low), exponent_of(x.high)}; }
TESSERA_INLINE __m256 mantissa_of(__m256 x) {
  const __m256 infinity = _mm256_set1_ps(INFINITY);
  const __m256i digits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffff));
  const __m256 mantissa = _mm256_castsi256_ps(_mm256_or_si256(digits, _mm256_set1_epi32(0x3f800000)));
  return _mm256_blendv_ps(mantissa, x, _mm256_cmp_ps(x, infinity, _CMP_NLT_UQ));
}
TESSERA_INLINE Vec mantissa_of(Vec x) { return {mantissa_of(x.low), mantissa_of(x.high)}; }

TESSERA_INLINE void transpose(__m256 (&a)[8]) {
  __m256 b[8];
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    a[4 * i] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0x44);
    a[4 * i + 1] = _mm256_shuffle_ps(b[4 * i], b[4 * i + 2], 0xee);
    a[4 * i + 2] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0x44);
    a[4 * i + 3] = _mm256_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0xee);
  }
  // a[4 g + c] holds column c of rows 4 g .. 4 g + 3 in its lower half, column c + 4 in its upper one.
  for (int c = 0; c < 4; ++c) {
    const __m256 first = a[c], second = a[4 + c];
    a[c] = _mm256_permute2f128_ps(first, second, 0x20);
    a[4 + c] = _mm256_permute2f128_ps(first, second, 0x31);
  }
}
// Transposes 16 x 16 floats: four squares of 8 x 8 are transposed, and two of them change places.
TESSERA_INLINE void transpose(Vec (&a)[16]) {
  __m256 square[8], other[8];
  for (int i = 0; i < 8; ++i) square[i] = a[i].low;
  transpose(square);
  for (int i = 0; i < 8; ++i) a[i].low = square[i];
  for (int i = 0; i < 8; ++i) square[i] = a[i].high, other[i] = a[8 + i].low;
  transpose(square);
  transpose(other);
  for (int i = 0; i < 8; ++i) a[i].high = other[i], a[8 + i].low = square[i];
  for (int i = 0; i < 8; ++i) square[i] = a[8 + i].high;
  transpose(square);
  for (int i = 0; i < 8; ++i) a[8 + i].high = square[i];
}

// Return the lower, or the upper bf16 of each word.
TESSERA_INLINE Vec widened_low(Vec x) {
  const auto shifted = [](__m256 half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(half), 16));
  };
  return {shifted(x.low), shifted(x.high)};
}
TESSERA_INLINE Vec widened_high(Vec x) {
  const __m256 upper = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000u)));
  return {_mm256_and_ps(x.low, upper), _mm256_and_ps(x.high, upper)};
}
// Writes turned[depth][row] = codes[row][first + depth] for sixteen depths.
TESSERA_INLINE void turn_codes(const int8_t* const (&codes)[16], int64_t first, int8_t (&turned)[16][16]) {
  const auto at = [&](int64_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes[row] + first));
  };
  // A half of the registers holds eight rows; after three steps, it has eight bytes of these for each of two
  // depths.
  __m256i a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(at(i)), at(i + 8), 1);
  const auto interleave = [](const __m256i(&from)[8], __m256i(&to)[8]) {
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = _mm256_unpacklo_epi8(from[i], from[i + 4]);
      to[2 * i + 1] = _mm256_unpackhi_epi8(from[i], from[i + 4]);
    }
  };
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
  for (int i = 0; i < 8; ++i) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(turned[2 * i]), _mm256_permute4x64_epi64(b[i], 0xd8));
  }
}
// Return sixteen codes, signed or unsigned, as floats.
TESSERA_INLINE Vec load_codes(const int8_t* codes) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(codes));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}
TESSERA_INLINE Vec load_unsigned_codes(const int8_t* codes) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(codes));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}
// Returns the values of sixteen codes of four bits in a table of sixteen floats.
TESSERA_INLINE Vec looked_up(Vec table, const int8_t* codes) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(codes));
  const auto look_up = [&](__m256i indices) {
    // A permutation reads three bits of an index, and a blend the sign: that of the fourth bit.
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, indices),
                            _mm256_permutevar8x32_ps(table.high, indices),
                            _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28)));
  };
  return {look_up(_mm256_cvtepu8_epi32(bytes)),
          look_up(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}
// Returns a b, rounded before anything is added to it.
TESSERA_INLINE Vec rounded_product(Vec a, Vec b) {
  Vec product = mul(a, b);
  __asm__("" : "+x"(product.low), "+x"(product.high));
  return product;
}

}  // namespace tessera::ops::kernels::avx2
