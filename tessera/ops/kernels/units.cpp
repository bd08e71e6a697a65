#include "tessera/ops/kernels/units.h"

#include "tessera/ops/kernels/unit_code.h"

namespace tessera::ops::kernels {

#if defined(TESSERA_UNIT_CODE)

template <>
const Units<float>* units<float>() {
  switch (usable_isa()) {
    case Isa::Amx: return &avx512::float_units_with_tiles();
    case Isa::Avx512: return &avx512::float_units();
    case Isa::Avx2: return &avx2::float_units();
    case Isa::Baseline: break;
  }
  return nullptr;
}

template <>
const Units<Bf16>* units<Bf16>() {
  // On Intel's processors the bfloat16 instruction makes no more sums a cycle than the two for float32 do;
  // measured, half as many.
  static const bool has_bf16 = detect_cpu_features().avx512_bf16 && !__builtin_cpu_is("intel");
  switch (usable_isa()) {
    case Isa::Amx: return &avx512::bf16_units_with_tiles();
    case Isa::Avx512: return has_bf16 ? &avx512::bf16_units() : &avx512::widened_units();
    case Isa::Avx2: return &avx2::widened_units();
    case Isa::Baseline: break;
  }
  return nullptr;
}

template <>
const Units<F16>* units<F16>() {
  switch (usable_isa()) {
    case Isa::Amx:
    case Isa::Avx512: return &avx512::half_units();
    case Isa::Avx2: return &avx2::half_units();
    case Isa::Baseline: break;
  }
  return nullptr;
}

UnitSession::UnitSession(Isa isa) : has_tiles_(isa == Isa::Amx) {
  if (has_tiles_) tiles::configure();
}
UnitSession::~UnitSession() {
  if (has_tiles_) tiles::release();
}

#else

template <>
const Units<float>* units<float>() {
  return nullptr;
}
template <>
const Units<Bf16>* units<Bf16>() {
  return nullptr;
}
template <>
const Units<F16>* units<F16>() {
  return nullptr;
}
UnitSession::UnitSession(Isa) : has_tiles_(false) {}
UnitSession::~UnitSession() = default;

#endif

}  // namespace tessera::ops::kernels
