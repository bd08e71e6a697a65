// Operands of matrix products in the form that the multiplying units read.
//
// [Note: packed operands]
// A product C = L R sums over the depth. L's rows and R's columns are called lines: a line of either is a
// vector over the depth. Lines are packed in panels of 32, two tiles side by side, and the depth in blocks
// of 32. A tile is 16 x 16 words of 32 bits, 1 KB: a left tile has a line in each row, a right tile in each
// column, and the other direction is the depth. Missing lines and depths are zeros.
//
// The memory goes panel by panel, and block by block in each: [planes, 2 tiles, 16 rows, 16 words]. The form
// decides what a word and a plane hold:
//
// - Bf16: a word is two successive depths; one plane is all of a block. For tile units (Intel AMX) and vector
// units with products of bf16.
//
// - float: a word is a float; the first plane has the first 16 depths of a block, the second the others. For
// vector units.
//
// - Widened and WidenedHalf: the elements are bf16 or float16, and the memory holds them as float does. For
// vector units that have no products of these types: elements are widened on their way into the panels, and
// no wide matrix ever exists.
//
// - Split: a float is the sum of three bf16, each of which is the rounding of what those before it leave
// over; they are three planes, and a word has the depths d and d + 16. For tile units. The sum is exact, but
// these units take numbers below 2^-126 for zero, so floats below 2^-103 lose their last bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/ops/kernels/kernels.h"

// Defined if this compiler can make code for vector and tile units. Clang writes their target options in
// another way.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_UNIT_CODE
#endif

namespace tessera::ops::kernels {

inline constexpr int64_t kTileLines = 16, kPanelLines = 32, kTileDepth = 32, kTileBytes = 1024;
inline constexpr int64_t kPlaneBytes = 2 * kTileBytes;  // bytes of one plane of a block

// Name the forms whose elements are of another type.
struct Widened;
struct WidenedHalf;
struct Split;

// Properties of a form: the planes and the bytes of a block of a panel, and the type of the elements that are
// packed.
template <class Form>
inline constexpr int64_t kPlanes = 1;
template <>
inline constexpr int64_t kPlanes<float> = 2;
template <>
inline constexpr int64_t kPlanes<Widened> = kPlanes<float>;
template <>
inline constexpr int64_t kPlanes<WidenedHalf> = kPlanes<float>;
template <>
inline constexpr int64_t kPlanes<Split> = 3;
template <class Form>
inline constexpr int64_t kBlockBytes = kPlanes<Form>* kPlaneBytes;

template <class Form>
struct PackedElement {
  using type = Form;
};
template <>
struct PackedElement<Widened> {
  using type = Bf16;
};
template <>
struct PackedElement<WidenedHalf> {
  using type = F16;
};
template <>
struct PackedElement<Split> {
  using type = float;
};
template <class Form>
using ElementOf = typename PackedElement<Form>::type;

// Return the number of panels for `lines` lines, and of blocks for a depth; the last one may be filled in
// part.
constexpr int64_t panels_of(int64_t lines) { return (lines + kPanelLines - 1) / kPanelLines; }
constexpr int64_t blocks_of(int64_t depth) { return (depth + kTileDepth - 1) / kTileDepth; }

// Lines as they lie in memory: element d of line l is data[l stride + d] if the depth is contiguous, else
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

// The packed lines of one operand.
struct Packed {
  const char* memory;
  int64_t lines, panel_bytes;
  int64_t panels() const { return panels_of(lines); }
  const char* panel(int64_t i) const { return memory + i * panel_bytes; }
  int64_t panel_lines(int64_t i) const { return std::min(kPanelLines, lines - i * kPanelLines); }
};

}  // namespace tessera::ops::kernels
