// Vectors of sixteen floats in an AVX-512 register, in which the code for vector units (vector_*.h) is
// written, and what packed operands (packed.h) need besides: squares of words transposed, and floats in three
// bf16. Included once, after #pragma GCC target, by a source of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include <immintrin.h>

#include "tessera/ops/kernels/lanes.h"
#include "tessera/ops/kernels/packed.h"
#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels::avx512 {

using Vec = __m512;
using Mask = __mmask16;  // a bit for each float

// How products of panels fill the registers: vectors in a row of C, and rows at a time.
inline constexpr int64_t kVecsOfProduct = 2;
inline constexpr int64_t kRowGroups[] = {11, 11, 10};  // groups of a panel's 32 lines
// Rows of a group whose words the multiplying instruction itself reads from memory. Each saves an instruction
// and costs a load for every vector but one. Measured on an Intel Xeon of family 6, model 207: about half of
// the rows gain 5 %, all of them lose.
inline constexpr int64_t kRowsFromMemory = 6;

// Return the masks of the first n elements: all of them if n is more, none if it is negative.
TESSERA_INLINE __mmask32 first_of_32(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(n, 0)) - 1;
}
TESSERA_INLINE Mask first_of(int64_t n) { return static_cast<Mask>(first_of_32(std::min<int64_t>(n, 16))); }

TESSERA_INLINE Vec zero() { return _mm512_setzero_ps(); }
TESSERA_INLINE Vec all(float x) { return _mm512_set1_ps(x); }
TESSERA_INLINE Vec load(const float* from) { return _mm512_loadu_ps(from); }
TESSERA_INLINE void store(float* to, Vec x) { _mm512_storeu_ps(to, x); }
// Load and store the elements of the mask; the others are loaded as zeros, and nothing of them is read or
// written.
TESSERA_INLINE Vec load(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
TESSERA_INLINE Vec load(const Bf16* from, Mask mask) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
}
TESSERA_INLINE Vec load(const F16* from, Mask mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
}
TESSERA_INLINE void store(F16* to, Mask mask, Vec x) {
  _mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
TESSERA_INLINE void store(float* to, Mask mask, Vec x) { _mm512_mask_storeu_ps(to, mask, x); }
// Rounds to nearest, ties to even, on processors without AVX512_BF16 too; NaN stays NaN.
TESSERA_INLINE void store(Bf16* to, Mask mask, Vec x) {
  alignas(32) Bf16 rounded[kLanes];
  store_lanes(rounded, reinterpret_cast<Lanes>(x));
  _mm256_mask_storeu_epi16(to, mask, _mm256_load_si256(reinterpret_cast<const __m256i*>(rounded)));
}

TESSERA_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
TESSERA_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
TESSERA_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
TESSERA_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
TESSERA_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// Returns *a b + c by one instruction; compilers load *a apart if it is used twice.
TESSERA_INLINE Vec multiply_add_from(const float* a, Vec b, Vec c) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
  return c;
}
TESSERA_INLINE Vec multiply_sub(Vec a, Vec b, Vec c) { return _mm512_fmsub_ps(a, b, c); }
// Return b if one of the two is not a number.
TESSERA_INLINE Vec larger(Vec a, Vec b) { return _mm512_max_ps(a, b); }
TESSERA_INLINE Vec smaller(Vec a, Vec b) { return _mm512_min_ps(a, b); }
TESSERA_INLINE Vec kept(Mask mask, Vec x) { return _mm512_maskz_mov_ps(mask, x); }
TESSERA_INLINE Vec chosen(Mask mask, Vec yes, Vec no) { return _mm512_mask_mov_ps(no, mask, yes); }
TESSERA_INLINE Mask is_not_less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
TESSERA_INLINE Mask is_not_equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
TESSERA_INLINE Vec nearest_integer(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// Returns x 2^n for whole n.
TESSERA_INLINE Vec times_power(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }
// Return e and m in [1, 2) of a positive normal number x = m 2^e.
TESSERA_INLINE Vec exponent_of(Vec x) { return _mm512_getexp_ps(x); }
TESSERA_INLINE Vec mantissa_of(Vec x) { return _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan); }

using Row = __m512i;  // a row of a tile: 16 words

// Transposes 16 x 16 words.
TESSERA_INLINE void transpose(Row (&a)[16]) {
  Row b[16];
  for (int i = 0; i < 8; ++i) {
    b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    a[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
    a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
    a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
    a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
  }
  // a[4 g + c] holds column c + 4 q of rows 4 g .. 4 g + 3 in its quarter q.
  for (int c = 0; c < 4; ++c) {
    b[c] = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88);
    b[4 + c] = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd);
    b[8 + c] = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
    b[12 + c] = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
  }
  for (int c = 0; c < 4; ++c) {
    a[c] = _mm512_shuffle_i32x4(b[c], b[8 + c], 0x88);
    a[4 + c] = _mm512_shuffle_i32x4(b[4 + c], b[12 + c], 0x88);
    a[8 + c] = _mm512_shuffle_i32x4(b[c], b[8 + c], 0xdd);
    a[12 + c] = _mm512_shuffle_i32x4(b[4 + c], b[12 + c], 0xdd);
  }
}
TESSERA_INLINE void transpose(Vec (&a)[16]) {
  Row rows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = _mm512_castps_si512(a[i]);
  transpose(rows);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_castsi512_ps(rows[i]);
}

// Return the lower, or the upper bf16 of each word.
TESSERA_INLINE Vec widened_low(Vec x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16));
}
TESSERA_INLINE Vec widened_high(Vec x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
// Returns sixteen codes from `first` on of row `row` in the lowest quarter, and of each fourth row behind it
// in the next ones.
TESSERA_INLINE Row four_rows(const int8_t* const (&codes)[16], int64_t first, int64_t row) {
  const auto at = [&](int64_t r) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes[r] + first));
  };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(at(row)), at(row + 4), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(at(row + 8)), at(row + 12), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// Writes turned[depth][row] = codes[row][first + depth] for sixteen depths.
TESSERA_INLINE void turn_codes(const int8_t* const (&codes)[16], int64_t first, int8_t (&turned)[16][16]) {
  const auto four = [&](int64_t row) { return four_rows(codes, first, row); };
  // A quarter of the registers holds four rows; after two steps, it has a word of these for each of four
  // depths.
  const Row a = four(0), b = four(1), c = four(2), d = four(3);
  const Row ac_low = _mm512_unpacklo_epi8(a, c), ac_high = _mm512_unpackhi_epi8(a, c);
  const Row bd_low = _mm512_unpacklo_epi8(b, d), bd_high = _mm512_unpackhi_epi8(b, d);
  const Row order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const Row depths[4] = {_mm512_unpacklo_epi8(ac_low, bd_low), _mm512_unpackhi_epi8(ac_low, bd_low),
                         _mm512_unpacklo_epi8(ac_high, bd_high), _mm512_unpackhi_epi8(ac_high, bd_high)};
  for (int i = 0; i < 4; ++i) _mm512_store_si512(turned[4 * i], _mm512_permutexvar_epi32(order, depths[i]));
}
// Return sixteen codes, signed or unsigned, as floats.
TESSERA_INLINE Vec load_codes(const int8_t* codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes))));
}
TESSERA_INLINE Vec load_unsigned_codes(const int8_t* codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes))));
}
// Returns the values of sixteen codes of four bits in a table of sixteen floats.
TESSERA_INLINE Vec looked_up(Vec table, const int8_t* codes) {
  const Row indices = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes)));
  return _mm512_permutexvar_ps(indices, table);
}
// Returns a b, rounded before anything is added to it.
TESSERA_INLINE Vec rounded_product(Vec a, Vec b) {
  Vec product = _mm512_mul_ps(a, b);
  __asm__("" : "+v"(product));
  return product;
}

// Returns the nearest bf16, as a float.
TESSERA_INLINE Vec nearest_bf16(Vec x) {
  const Row bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
// Returns two bf16, given as floats, in each word. The lower half of `second` is masked off: the last plane
// of a float near the least ones need not be 0 there.
TESSERA_INLINE Row paired(Vec first, Vec second) {
  constexpr int kFirstOrKeptSecond = 0xf8;  // a | (b & c)
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                                   _mm512_castps_si512(second),
                                   _mm512_set1_epi32(static_cast<int>(0xffff0000u)), kFirstOrKeptSecond);
}

// A float as the sum of three bf16.
struct Planes {
  Vec high, middle, low;
};
TESSERA_INLINE Planes planes_of(Vec x) {
  const Vec high = nearest_bf16(x), rest = _mm512_sub_ps(x, high), middle = nearest_bf16(rest);
  // The last rest has no more bits than a bf16.
  return {high, middle, _mm512_sub_ps(rest, middle)};
}

// Writes one row of a tile in each plane.
TESSERA_INLINE void store_planes(const Planes& first, const Planes& second, char* to) {
  _mm512_store_si512(to, paired(first.high, second.high));
  _mm512_store_si512(to + kPlaneBytes, paired(first.middle, second.middle));
  _mm512_store_si512(to + 2 * kPlaneBytes, paired(first.low, second.low));
}

}  // namespace tessera::ops::kernels::avx512
