// Packing of operands (packed.h), for each kind of vector unit. Included by units_*.cpp after vec_*.h;
// TESSERA_VEC names that header's namespace.
#pragma once

namespace tessera::ops::kernels::TESSERA_VEC {

// A tile's elements as they lie in memory. `lines` and `depth` count those that are there, up to 16 and 32;
// if the compiler knows both, no mask remains.
template <class T, bool IsDepthContiguous>
struct TileSource {
  const T* data;
  int64_t stride, lines, depth;
};

// Returns row `row` of the first or second half of the depths, as it lies in memory, in 16 floats.
template <class T, bool IsDepthContiguous>
TESSERA_INLINE Vec load_words(const TileSource<T, IsDepthContiguous>& from, int64_t half, int64_t row) {
  const int64_t first = 16 * half;
  if (IsDepthContiguous) {
    if (row >= from.lines) return zero();
    return load(from.data + row * from.stride + first, first_of(from.depth - first));
  }
  if (first + row >= from.depth) return zero();
  return load(from.data + (first + row) * from.stride, first_of(from.lines));
}

// The stored form of a tile's row of floats. For float and the widened forms it is the row itself, in two
// planes.
template <class Form>
struct StoredRow;
template <>
struct StoredRow<float> {
  using type = Vec;
  static Vec of(Vec x) { return x; }
};
template <>
struct StoredRow<Widened> : StoredRow<float> {};
template <>
struct StoredRow<WidenedHalf> : StoredRow<float> {};
TESSERA_INLINE void store_row(Vec first, Vec second, char* to) {
  store(reinterpret_cast<float*>(to), first);
  store(reinterpret_cast<float*>(to + kPlaneBytes), second);
}

template <class Form, class T, bool IsDepthContiguous>
TESSERA_INLINE void pack_tile(const TileSource<T, IsDepthContiguous>& from, bool must_turn, char* to) {
  using Stored = StoredRow<Form>;
  if (!must_turn) {
#pragma GCC unroll 4
    for (int64_t row = 0; row < 16; ++row) {
      store_row(Stored::of(load_words(from, 0, row)), Stored::of(load_words(from, 1, row)), to + row * 64);
    }
    return;
  }
  alignas(64) float halves[2][16][16];
  for (int64_t half = 0; half < 2; ++half) {
    Vec rows[16];
#pragma GCC unroll 16
    for (int64_t row = 0; row < 16; ++row) rows[row] = load_words(from, half, row);
    transpose(rows);
#pragma GCC unroll 16
    for (int64_t row = 0; row < 16; ++row) store(halves[half][row], rows[row]);
  }
#pragma GCC unroll 4
  for (int64_t row = 0; row < 16; ++row) {
    store_row(Stored::of(load(halves[0][row])), Stored::of(load(halves[1][row])), to + row * 64);
  }
}

// Fetches the tile after the one at `data`, in the order of pack_panels(). The rows of a tile lie so far
// apart that the processor foresees few of them.
template <class T, bool IsDepthContiguous>
TESSERA_INLINE void fetch_next(const T* data, int64_t stride) {
  constexpr int64_t kRows = IsDepthContiguous ? kTileLines : kTileDepth;
  constexpr int64_t kFloatsOfLine = 16;
#pragma GCC unroll 4
  for (int64_t row = 0; row < kRows; ++row) {
    const T* next = data + row * stride + kTileDepth;
    __builtin_prefetch(next);
    if constexpr (IsDepthContiguous && sizeof(T) == 4) __builtin_prefetch(next + kFloatsOfLine);
  }
}

template <class Form, bool IsDepthContiguous>
void pack_panels(Side side, Lines<ElementOf<Form>> from, int64_t lines, int64_t depth, char* to,
                 int64_t panel_stride) {
  using T = ElementOf<Form>;
  constexpr bool kDeep = IsDepthContiguous;
  const bool must_turn = kDeep == (side == Side::Right);
  const int64_t panels = panels_of(lines), blocks = blocks_of(depth);
  for (int64_t i = 0; i < panels * blocks; ++i) {
    // Tiles are taken in the order in which the elements lie in memory.
    const int64_t panel = kDeep ? i / blocks : i % panels, block = kDeep ? i % blocks : i / panels;
    char* at = to + panel * panel_stride + block * kBlockBytes<Form>;
    const int64_t deep = std::min(kTileDepth, depth - block * kTileDepth);
    for (int64_t half = 0; half < 2; ++half, at += kTileBytes) {
      const int64_t line = panel * kPanelLines + half * kTileLines;
      const int64_t wide = std::clamp<int64_t>(lines - line, 0, kTileLines);
      const T* data = from.at(line, block * kTileDepth);
      fetch_next<T, kDeep>(data, from.stride);
      if (wide == kTileLines && deep == kTileDepth) {
        pack_tile<Form>(TileSource<T, kDeep>{data, from.stride, kTileLines, kTileDepth}, must_turn, at);
      } else {
        pack_tile<Form>(TileSource<T, kDeep>{data, from.stride, wide, deep}, must_turn, at);
      }
    }
  }
}

template <class Form>
void pack(Side side, Lines<ElementOf<Form>> from, int64_t lines, int64_t depth, void* to,
          int64_t panel_stride) {
  const auto run = from.is_depth_contiguous ? pack_panels<Form, true> : pack_panels<Form, false>;
  run(side, from, lines, depth, static_cast<char*>(to), panel_stride);
}

}  // namespace tessera::ops::kernels::TESSERA_VEC
