// Rows of packed tiles (tile_pack.h) in AVX-512 registers.
#pragma once

#include "tessera/ops/kernels/tile_pack.h"

#if defined(TESSERA_TILE_CODE)

#include <algorithm>
#include <cstdint>

#include <immintrin.h>

#include "tessera/ops/kernels/vector_math.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace tessera::ops::kernels {

using Row = __m512i;  // of a tile, or of a square of 16 x 16 words

// Masks of the first n of 32, and of 16, elements; all of them where n is more, none where it is negative.
TESSERA_INLINE __mmask32 first_of(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(n, 0)) - 1;
}
TESSERA_INLINE __mmask16 first_words(int64_t n) {
  return static_cast<__mmask16>(first_of(std::min<int64_t>(n, 16)));
}

// Sixteen floats from and to memory, of which the mask says those that are there.
TESSERA_INLINE __m512 load_floats(const float* from, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, from);
}
TESSERA_INLINE __m512 load_floats(const Bf16* from, __mmask16 mask) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
}
TESSERA_INLINE void store_floats(float* to, __mmask16 mask, __m512 x) { _mm512_mask_storeu_ps(to, mask, x); }
TESSERA_INLINE void store_floats(Bf16* to, __mmask16 mask, __m512 x) {
  _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

// Turns 16 x 16 words round.
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

// The nearest bf16, as a float.
TESSERA_INLINE __m512 nearest(__m512 x) {
  const Row bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
// Two bf16, given as floats, in each word. The lower half of `second` counts for nothing: that of what is
// left of a float near the least ones need not be 0.
TESSERA_INLINE Row paired(__m512 first, __m512 second) {
  constexpr int kFirstOrKeptSecond = 0xf8;  // a | (b & c)
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                                   _mm512_castps_si512(second),
                                   _mm512_set1_epi32(static_cast<int>(0xffff0000u)), kFirstOrKeptSecond);
}

// A float in three bf16.
struct Planes {
  __m512 high, middle, low;
};
TESSERA_INLINE Planes planes_of(__m512 x) {
  const __m512 high = nearest(x), rest = _mm512_sub_ps(x, high), middle = nearest(rest);
  // What is left has no more bits than a bf16.
  return {high, middle, _mm512_sub_ps(rest, middle)};
}

// Writes a tile's row of each plane. The pairs of depths are those 16 apart, in both operands alike.
TESSERA_INLINE void store_planes(const Planes& first, const Planes& second, char* to) {
  _mm512_store_si512(to, paired(first.high, second.high));
  _mm512_store_si512(to + kPlaneBytes, paired(first.middle, second.middle));
  _mm512_store_si512(to + 2 * kPlaneBytes, paired(first.low, second.low));
}

}  // namespace tessera::ops::kernels

#pragma GCC pop_options

#endif
