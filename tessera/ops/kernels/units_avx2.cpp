// Vector units of 256 bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "tessera/ops/kernels/unit_code.h"
#include "tessera/ops/kernels/vector_math.h"

#if defined(TESSERA_UNIT_CODE)
#include <immintrin.h>
#pragma GCC target("avx2,fma,f16c")
#define TESSERA_VEC avx2

#include "tessera/ops/kernels/vec_avx2.h"
//
#include "tessera/ops/kernels/vector_units.h"

namespace tessera::ops::kernels::avx2 {

namespace {

template <class Form>
Units<ElementOf<Form>> avx2_units() {
  Units<ElementOf<Form>> units = vector_units<Form>(Isa::Avx2);
  units.own_bytes = int64_t{200} << 10;
  units.max_depth = 384;
  units.backward_queries = 64;
  return units;
}

}  // namespace

const Units<float>& float_units() {
  static const Units<float> table = avx2_units<float>();
  return table;
}

const Units<Bf16>& widened_units() {
  static const Units<Bf16> table = avx2_units<Widened>();
  return table;
}

const Units<F16>& half_units() {
  static const Units<F16> table = avx2_units<WidenedHalf>();
  return table;
}

}  // namespace tessera::ops::kernels::avx2
#endif
