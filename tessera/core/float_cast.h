// Casts from float32 to the narrower types of files, on plain memory.
#pragma once

#include <cstdint>

#include "tessera/core/dtype.h"

namespace tessera {

// Round to the nearest value, ties to even; NaN stays NaN.
uint16_t float_to_bfloat16(float value);
uint16_t float_to_half(float value);

// Writes `count` values as `dtype` (F32, BF16 or F16) to `destination`. Throws Error(Internal) for another
// type.
void cast_from_float(const float* values, int64_t count, DType dtype, void* destination);

}  // namespace tessera
