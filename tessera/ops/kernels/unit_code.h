// What the sources of the units (units_*.cpp) give each other and units.cpp.
#pragma once

#include "tessera/ops/kernels/units.h"

#if defined(TESSERA_UNIT_CODE)
namespace tessera::ops::kernels {

// The products of Units for tile units, forms Split and Bf16.
namespace tiles {
void configure();  // of the calling thread
void release();
template <class Form, class Out>
void multiply(const Packed& left, const Packed& right, int64_t group, float beta, Out* c, int64_t ldc);
template <class Form>
void multiply_panel(const char* left, const char* right, int64_t blocks, bool adds, float* c, int64_t ldc);
}  // namespace tiles

// Tile units work beside AVX-512, which does all but the products.
namespace avx512 {
// to = sum + beta to over n elements.
void add_sums(const float* sum, float beta, float* to, int64_t n);
void add_sums(const float* sum, float beta, Bf16* to, int64_t n);
const Units<float>& float_units();
const Units<Bf16>& bf16_units();
const Units<float>& float_units_with_tiles();
const Units<Bf16>& bf16_units_with_tiles();
}  // namespace avx512

namespace avx2 {
const Units<float>& float_units();
}  // namespace avx2

}  // namespace tessera::ops::kernels
#endif
