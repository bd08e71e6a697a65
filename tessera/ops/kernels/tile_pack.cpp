#include "tessera/ops/kernels/tile_pack.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/ops/kernels/tile_rows.h"
#include "tessera/ops/kernels/vector_math.h"

#if defined(TESSERA_TILE_CODE)
#include <immintrin.h>
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#endif

namespace tessera::ops::kernels {

#if defined(TESSERA_TILE_CODE)
namespace {

// How a tile's elements lie in memory. `lines` and `depth` are those that are there, up to 16 and 32; where
// both are known to the compiler no mask remains.
template <class T, bool IsDepthContiguous>
struct TileSource {
  const T* data;
  int64_t stride, lines, depth;
};

// Row `row` of the first or second half of the depths, as stored: 16 words.
template <bool IsDepthContiguous>
TESSERA_INLINE __m512 load_words(const TileSource<float, IsDepthContiguous>& from, int64_t half,
                                 int64_t row) {
  const int64_t first = 16 * half;
  if (IsDepthContiguous) {
    if (row >= from.lines) return _mm512_setzero_ps();
    return _mm512_maskz_loadu_ps(first_words(from.depth - first), from.data + row * from.stride + first);
  }
  if (first + row >= from.depth) return _mm512_setzero_ps();
  return _mm512_maskz_loadu_ps(first_words(from.lines), from.data + (first + row) * from.stride);
}

template <bool IsDepthContiguous>
TESSERA_INLINE void turn_half(const TileSource<float, IsDepthContiguous>& from, int64_t half,
                              float (&to)[16][16]) {
  Row rows[16];
#pragma GCC unroll 16
  for (int64_t row = 0; row < 16; ++row) rows[row] = _mm512_castps_si512(load_words(from, half, row));
  transpose(rows);
#pragma GCC unroll 16
  for (int64_t row = 0; row < 16; ++row) _mm512_store_si512(to[row], rows[row]);
}

template <bool IsDepthContiguous>
TESSERA_INLINE void pack_tile(const TileSource<float, IsDepthContiguous>& from, bool must_turn, char* to) {
  if (!must_turn) {
#pragma GCC unroll 4
    for (int64_t row = 0; row < 16; ++row) {
      store_planes(planes_of(load_words(from, 0, row)), planes_of(load_words(from, 1, row)), to + row * 64);
    }
    return;
  }
  alignas(64) float halves[2][16][16];
  turn_half(from, 0, halves[0]);
  turn_half(from, 1, halves[1]);
#pragma GCC unroll 4
  for (int64_t row = 0; row < 16; ++row) {
    store_planes(planes_of(_mm512_load_ps(halves[0][row])), planes_of(_mm512_load_ps(halves[1][row])),
                 to + row * 64);
  }
}

// The row of a tile before it is turned: a line's 32 depths, or 16 lines of two depths side by side.
template <bool IsDepthContiguous>
TESSERA_INLINE Row load_row(const TileSource<Bf16, IsDepthContiguous>& from, int64_t row) {
  if (IsDepthContiguous) {
    if (row >= from.lines) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(first_of(from.depth), from.data + row * from.stride);
  }
  if (2 * row >= from.depth) return _mm512_setzero_si512();
  alignas(64) static constexpr uint16_t kSideBySide[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __mmask16 mask = first_words(from.lines);
  const Bf16* first = from.data + 2 * row * from.stride;
  const __m256i low = _mm256_maskz_loadu_epi16(mask, first);
  const __m256i high =
      2 * row + 1 < from.depth ? _mm256_maskz_loadu_epi16(mask, first + from.stride) : _mm256_setzero_si256();
  return _mm512_permutexvar_epi16(_mm512_load_si512(kSideBySide),
                                  _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

template <bool IsDepthContiguous>
TESSERA_INLINE void pack_tile(const TileSource<Bf16, IsDepthContiguous>& from, bool must_turn, char* to) {
  Row rows[16];
#pragma GCC unroll 16
  for (int64_t row = 0; row < 16; ++row) rows[row] = load_row(from, row);
  if (must_turn) transpose(rows);
#pragma GCC unroll 16
  for (int64_t row = 0; row < 16; ++row) _mm512_store_si512(to + row * 64, rows[row]);
}

template <bool IsDepthContiguous, class T>
void pack(Side side, Lines<T> from, int64_t lines, int64_t depth, char* to, int64_t panel_stride) {
  constexpr bool kDeep = IsDepthContiguous;
  const bool must_turn = kDeep == (side == Side::Right);
  const int64_t panels = panels_of(lines), blocks = blocks_of(depth);
  for (int64_t i = 0; i < panels * blocks; ++i) {
    // In the order in which the elements lie in memory.
    const int64_t panel = kDeep ? i / blocks : i % panels, block = kDeep ? i % blocks : i / panels;
    char* at = to + panel * panel_stride + block * kBlockBytes<T>;
    const int64_t deep = std::min(kTileDepth, depth - block * kTileDepth);
    for (int64_t half = 0; half < 2; ++half, at += kTileBytes) {
      const int64_t line = panel * kPanelLines + half * kTileLines;
      const int64_t wide = std::clamp<int64_t>(lines - line, 0, kTileLines);
      const T* data = from.at(line, block * kTileDepth);
      if (wide == kTileLines && deep == kTileDepth) {
        pack_tile(TileSource<T, kDeep>{data, from.stride, kTileLines, kTileDepth}, must_turn, at);
      } else {
        pack_tile(TileSource<T, kDeep>{data, from.stride, wide, deep}, must_turn, at);
      }
    }
  }
}

template <class T>
void pack_any(Side side, Lines<T> from, int64_t lines, int64_t depth, void* to, int64_t panel_stride) {
  const int64_t stride = panel_stride > 0 ? panel_stride : panel_bytes<T>(depth);
  if (from.is_depth_contiguous) {
    pack<true>(side, from, lines, depth, static_cast<char*>(to), stride);
  } else {
    pack<false>(side, from, lines, depth, static_cast<char*>(to), stride);
  }
}

}  // namespace

void pack_lines(Side side, Lines<float> from, int64_t lines, int64_t depth, void* to, int64_t panel_stride) {
  pack_any(side, from, lines, depth, to, panel_stride);
}
void pack_lines(Side side, Lines<Bf16> from, int64_t lines, int64_t depth, void* to, int64_t panel_stride) {
  pack_any(side, from, lines, depth, to, panel_stride);
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
