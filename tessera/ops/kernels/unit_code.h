// Functions that the sources of the units (units_*.cpp) give each other and units.cpp.
#pragma once

#include "tessera/ops/kernels/units.h"

#if defined(TESSERA_UNIT_CODE)
namespace tessera::ops::kernels {

// Does what Units::multiply does by a function for one block, called for every pair of panels: block(left
// panel, right panel, blocks, beta, C, ldc, rows, columns).
template <class Form, class Out, class Block>
[[gnu::always_inline]] inline void multiply_blocks(const Packed& left, const Packed& right, int64_t group,
                                                   float beta, Out* c, int64_t ldc, const Block& block) {
  const int64_t blocks = left.panel_bytes / kBlockBytes<Form>;
  for (int64_t first = 0; first < right.panels(); first += group) {
    const int64_t end = std::min(first + group, right.panels());
    for (int64_t i = 0; i < left.panels(); ++i) {
      for (int64_t j = first; j < end; ++j) {
        block(left.panel(i), right.panel(j), blocks, beta, c + i * kPanelLines * ldc + j * kPanelLines, ldc,
              left.panel_lines(i), right.panel_lines(j));
      }
    }
  }
}

// The products of Units for tile units, forms Split and Bf16.
namespace tiles {
void configure();  // sets up the calling thread's tiles
// Gives the calling thread's tiles free.
void release();
template <class Form, class Out>
void multiply(const Packed& left, const Packed& right, int64_t group, float beta, Out* c, int64_t ldc);
template <class Form>
void multiply_panel(const char* left, const char* right, int64_t blocks, bool adds, float* c, int64_t ldc);
}  // namespace tiles

// Functions of AVX-512, which does all but the products for the tile units.
namespace avx512 {
// Computes C = sums + beta C for [rows, columns].
void add_sums(const float* sums, int64_t sum_stride, float beta, float* c, int64_t ldc, int64_t rows,
              int64_t columns);
void add_sums(const float* sums, int64_t sum_stride, float beta, Bf16* c, int64_t ldc, int64_t rows,
              int64_t columns);
const Units<float>& float_units();
const Units<Bf16>& widened_units();
const Units<F16>& half_units();
const Units<Bf16>& bf16_units();
const Units<float>& float_units_with_tiles();
const Units<Bf16>& bf16_units_with_tiles();
}  // namespace avx512

namespace avx2 {
const Units<float>& float_units();
const Units<Bf16>& widened_units();
const Units<F16>& half_units();
}  // namespace avx2

}  // namespace tessera::ops::kernels
#endif
