// Rounding of numbers to codes of 8 bits that share a scale.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {

// Returns the largest magnitude, or NaN if there is one: compared as integers, the bits of magnitudes are in
// order, and those of NaN are the largest.
TESSERA_INLINE float largest_magnitude(const float* x, int64_t n) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, bits_of(x[i]) & 0x7fffffffu);
  return float_of(largest);
}

// Writes x * inverse, rounded to nearest even. Numbers that are not finite give any code: the block's scale
// is not finite either.
TESSERA_INLINE void round_to_codes(const float* x, int64_t n, float inverse, int8_t* codes) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = static_cast<int8_t>(bits_of(x[i] * inverse + kRoundToInteger) - bits_of(kRoundToInteger));
  }
}

}  // namespace tessera::ops::kernels
