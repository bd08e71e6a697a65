#include "tessera/ops/kernels/tile_pack.h"

#include <algorithm>

#include "tessera/core/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#endif

namespace tessera::ops::kernels {

#if defined(__x86_64__)
namespace {

using Row = __m512i;  // of a tile, or of a square of 16 x 16 words
constexpr int64_t kPlaneBytes = 2 * kTileBytes;

__mmask32 first_of(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(n, 0)) - 1;
}
__mmask16 first_words(int64_t n) { return static_cast<__mmask16>(first_of(std::min<int64_t>(n, 16))); }

// Turns 16 x 16 words round.
void transpose(Row (&a)[16]) {
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
__m512 nearest(__m512 x) {
  const Row bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
// Two bf16, given as floats, in each word.
Row paired(__m512 first, __m512 second) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16), _mm512_castps_si512(second));
}

// Writes a tile's row of each plane. The pairs of depths are those 16 apart, in both operands alike.
void store_planes(__m512 first, __m512 second, char* to) {
  for (int plane = 0; plane < 2; ++plane, to += kPlaneBytes) {
    const __m512 a = nearest(first), b = nearest(second);
    _mm512_store_si512(to, paired(a, b));
    first = _mm512_sub_ps(first, a);
    second = _mm512_sub_ps(second, b);
  }
  // What is left has no more bits than a bf16.
  _mm512_store_si512(to, paired(first, second));
}

// Row `row` of the first or second half of a tile's depths, as stored: 16 words.
__m512 load_words(Lines<float> from, int64_t half, int64_t row, int64_t lines, int64_t depth) {
  const int64_t first = 16 * half;
  if (from.is_depth_contiguous) {
    if (row >= lines) return _mm512_setzero_ps();
    return _mm512_maskz_loadu_ps(first_words(depth - first), from.at(row, first));
  }
  if (first + row >= depth) return _mm512_setzero_ps();
  return _mm512_maskz_loadu_ps(first_words(lines), from.at(0, first + row));
}

void pack_tile(Lines<float> from, bool must_turn, int64_t lines, int64_t depth, char* to) {
  if (!must_turn) {
    for (int64_t row = 0; row < 16; ++row) {
      store_planes(load_words(from, 0, row, lines, depth), load_words(from, 1, row, lines, depth),
                   to + row * 64);
    }
    return;
  }
  alignas(64) float halves[2][16][16];
  for (int64_t half = 0; half < 2; ++half) {
    Row rows[16];
    for (int64_t row = 0; row < 16; ++row)
      rows[row] = _mm512_castps_si512(load_words(from, half, row, lines, depth));
    transpose(rows);
    for (int64_t row = 0; row < 16; ++row) _mm512_store_si512(halves[half][row], rows[row]);
  }
  for (int64_t row = 0; row < 16; ++row) {
    store_planes(_mm512_load_ps(halves[0][row]), _mm512_load_ps(halves[1][row]), to + row * 64);
  }
}

// Two depths' 16 lines each, side by side.
Row interleaved(const Bf16* first, const Bf16* second, int64_t lines) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __mmask16 mask = first_words(lines);
  const __m256i low = _mm256_maskz_loadu_epi16(mask, first),
                high = second == nullptr ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, second);
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder),
                                  _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

void pack_tile(Lines<Bf16> from, bool must_turn, int64_t lines, int64_t depth, char* to) {
  Row rows[16];
  for (int64_t row = 0; row < 16; ++row) {
    if (from.is_depth_contiguous) {
      rows[row] =
          row < lines ? _mm512_maskz_loadu_epi16(first_of(depth), from.at(row, 0)) : _mm512_setzero_si512();
    } else {
      const int64_t d = 2 * row;
      rows[row] = d >= depth ? _mm512_setzero_si512()
                             : interleaved(from.at(0, d), d + 1 < depth ? from.at(0, d + 1) : nullptr, lines);
    }
  }
  if (must_turn) transpose(rows);
  for (int64_t row = 0; row < 16; ++row) _mm512_store_si512(to + row * 64, rows[row]);
}

template <class T>
void pack(Side side, Lines<T> from, int64_t lines, int64_t depth, char* to, int64_t panel_stride) {
  const bool must_turn = from.is_depth_contiguous == (side == Side::Right);
  const int64_t panels = (lines + kPanelLines - 1) / kPanelLines;
  const int64_t blocks = (depth + kTileDepth - 1) / kTileDepth;
  for (int64_t i = 0; i < panels * blocks; ++i) {
    // In the order in which the elements lie in memory.
    const int64_t panel = from.is_depth_contiguous ? i / blocks : i % panels;
    const int64_t block = from.is_depth_contiguous ? i % blocks : i / panels;
    char* at = to + panel * panel_stride + block * kBlockBytes<T>;
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t line = panel * kPanelLines + half * kTileLines;
      const Lines<T> part{from.at(line, block * kTileDepth), from.stride, from.is_depth_contiguous};
      pack_tile(part, must_turn, std::clamp<int64_t>(lines - line, 0, kTileLines),
                std::min(kTileDepth, depth - block * kTileDepth), at + half * kTileBytes);
    }
  }
}

}  // namespace

void pack_lines(Side side, Lines<float> from, int64_t lines, int64_t depth, void* to, int64_t panel_stride) {
  pack(side, from, lines, depth, static_cast<char*>(to),
       panel_stride > 0 ? panel_stride : panel_bytes<float>(depth));
}
void pack_lines(Side side, Lines<Bf16> from, int64_t lines, int64_t depth, void* to, int64_t panel_stride) {
  pack(side, from, lines, depth, static_cast<char*>(to),
       panel_stride > 0 ? panel_stride : panel_bytes<Bf16>(depth));
}

#else

void pack_lines(Side, Lines<float>, int64_t, int64_t, void*, int64_t) {
  TESSERA_ASSERT(false, "no tile units");
}
void pack_lines(Side, Lines<Bf16>, int64_t, int64_t, void*, int64_t) {
  TESSERA_ASSERT(false, "no tile units");
}

#endif

}  // namespace tessera::ops::kernels
