// The forms Split, for tile units, and Bf16, which AVX-512 adds to the code for vector units (vector_*.h).
// Included by units_avx512.cpp after those.
#pragma once

namespace tessera::ops::kernels::avx512 {

template <>
struct StoredRow<Split> {
  using type = Planes;
  static Planes of(Vec x) { return planes_of(x); }
};
TESSERA_INLINE void store_row(const Planes& first, const Planes& second, char* to) {
  store_planes(first, second, to);
}

// Returns the row of a tile before it is turned: a line's 32 depths, or 16 lines of two depths side by side.
template <bool IsDepthContiguous>
TESSERA_INLINE Row load_row(const TileSource<Bf16, IsDepthContiguous>& from, int64_t row) {
  if (IsDepthContiguous) {
    if (row >= from.lines) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(first_of_32(from.depth), from.data + row * from.stride);
  }
  if (2 * row >= from.depth) return _mm512_setzero_si512();
  alignas(64) static constexpr uint16_t kSideBySide[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const Mask mask = first_of(from.lines);
  const Bf16* first = from.data + 2 * row * from.stride;
  const __m256i low = _mm256_maskz_loadu_epi16(mask, first);
  const __m256i high =
      2 * row + 1 < from.depth ? _mm256_maskz_loadu_epi16(mask, first + from.stride) : _mm256_setzero_si256();
  return _mm512_permutexvar_epi16(_mm512_load_si512(kSideBySide),
                                  _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

template <class Form, bool IsDepthContiguous>
requires std::is_same_v<Form, Bf16> TESSERA_INLINE void pack_tile(
    const TileSource<Bf16, IsDepthContiguous>& from, bool must_turn, char* to) {
  Row rows[16];
#pragma GCC unroll 16
  for (int64_t row = 0; row < 16; ++row) rows[row] = load_row(from, row);
  if (must_turn) transpose(rows);
#pragma GCC unroll 16
  for (int64_t row = 0; row < 16; ++row) _mm512_store_si512(to + row * 64, rows[row]);
}

template <>
struct WordProduct<Bf16> {
  TESSERA_INLINE Vec added(Vec sum, Vec a, Vec b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static constexpr int64_t kRowsFromMemory = 0;
};

template <>
struct Numbers<Bf16> {
  Row row;
  Numbers(Vec low, Vec high) : row(reinterpret_cast<Row>(_mm512_cvtne2ps_pbh(high, low))) {}
};
TESSERA_INLINE void store_left(const Numbers<Bf16>& x, int64_t row, char* tile) {
  _mm512_store_si512(tile + row * 64, x.row);
}
TESSERA_INLINE void store_right(const Numbers<Bf16>& a, const Numbers<Bf16>& b, int64_t row, char* block) {
  const Row low = _mm512_unpacklo_epi16(a.row, b.row), high = _mm512_unpackhi_epi16(a.row, b.row);
  const Row first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
            second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_store_si512(block + row * 64, _mm512_permutex2var_epi64(low, first, high));
  _mm512_store_si512(block + kTileBytes + row * 64, _mm512_permutex2var_epi64(low, second, high));
}

}  // namespace tessera::ops::kernels::avx512
