#include "tessera/core/float_cast.h"

#include <bit>
#include <cstring>

#include "tessera/core/error.h"

namespace tessera {

uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // NaN: the bit that is set keeps the shortened mantissa from being zero, which would be an infinity.
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;   // NaN
  if (magnitude >= 0x477ff000U) return sign | 0x7c00U;  // rounds beyond the largest half
  if (magnitude < 0x38800000U) {
    // Below the smallest normal half: adding 0.5 leaves the rounded subnormal in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000U);
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return sign | static_cast<uint16_t>((rounded - 0x38000000U) >> 13);
}

void cast_from_float(const float* values, int64_t count, DType dtype, void* destination) {
  auto* halves = static_cast<uint16_t*>(destination);
  switch (dtype) {
    case DType::F32: std::memcpy(destination, values, static_cast<size_t>(count) * sizeof(float)); return;
    case DType::BF16:
      for (int64_t i = 0; i < count; ++i) halves[i] = float_to_bfloat16(values[i]);
      return;
    case DType::F16:
      for (int64_t i = 0; i < count; ++i) halves[i] = float_to_half(values[i]);
      return;
    default: TESSERA_ASSERT(false, "no cast to this type");
  }
}

}  // namespace tessera
