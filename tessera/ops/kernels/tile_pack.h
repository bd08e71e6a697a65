// Operands of matrix products in the form that the processor's tile units (Intel AMX) read.
//
// [Note: packed operands]
// A product C = L R sums over the depth. L's rows and R's columns are called lines: a line of either is a
// vector over the depth. Lines are packed in panels of 32, two tiles side by side, and the depth in blocks
// of 32: a tile holds 16 lines of 32 bf16, 1 KB. A left tile has a line in each row; a right tile has a pair
// of depths in each row, and a line in each of its 16 columns. Missing lines and depths are zeros.
//
// Panel by panel, block by block: [planes, 2 tiles, 16 rows, 32 elements].
//
// bf16 has one plane. A float is the sum of three bf16, of which each is the rounding of what those before
// it leave over; they are three planes. The sum is exact, but the tile
// units take what is below 2^-126 for zero, so floats below 2^-103 lose their last bits.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/kernels.h"

// Whether this compiler can make code for tile units. Clang writes their target options in another way.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_TILE_CODE
#endif

namespace tessera::ops::kernels {

inline constexpr int64_t kTileLines = 16, kPanelLines = 32, kTileDepth = 32, kTileBytes = 1024;
inline constexpr int64_t kPlaneBytes = 2 * kTileBytes;  // of a block

template <class T>
inline constexpr int64_t kPlanes = sizeof(T) == sizeof(float) ? 3 : 1;

// Bytes of a block of a panel.
template <class T>
inline constexpr int64_t kBlockBytes = kPlanes<T>* kPlaneBytes;

// Begun panels of lines, and begun blocks of a depth.
constexpr int64_t panels_of(int64_t lines) { return (lines + kPanelLines - 1) / kPanelLines; }
constexpr int64_t blocks_of(int64_t depth) { return (depth + kTileDepth - 1) / kTileDepth; }

// Lines as stored: element d of line l is data[l stride + d] if the depth is contiguous, else
// data[d stride + l].
template <class T>
struct Lines {
  const T* data;
  int64_t stride;
  bool is_depth_contiguous;
  const T* at(int64_t line, int64_t depth) const {
    return is_depth_contiguous ? data + line * stride + depth : data + depth * stride + line;
  }
};

enum class Side : bool { Left, Right };

// Bytes of a panel of lines of `depth` elements.
template <class T>
constexpr int64_t panel_bytes(int64_t depth) {
  return blocks_of(depth) * kBlockBytes<T>;
}

// Packs `lines` lines, `depth` elements each, into panels from `to` on, `panel_stride` bytes apart (0: one
// directly after the other); 64-byte aligned. For processors with AVX512_BF16.
void pack_lines(Side side, Lines<float> from, int64_t lines, int64_t depth, void* to,
                int64_t panel_stride = 0);
void pack_lines(Side side, Lines<Bf16> from, int64_t lines, int64_t depth, void* to,
                int64_t panel_stride = 0);

}  // namespace tessera::ops::kernels
