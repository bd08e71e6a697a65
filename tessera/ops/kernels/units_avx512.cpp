// Vector units of 512 bits, and the functions of theirs that tile units use.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "tessera/ops/kernels/unit_code.h"
#include "tessera/ops/kernels/vector_math.h"

#if defined(TESSERA_UNIT_CODE)
#include <immintrin.h>
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#define TESSERA_VEC avx512

#include "tessera/ops/kernels/vec_avx512.h"
//
#include "tessera/ops/kernels/vector_units.h"
//
#include "tessera/ops/kernels/avx512_digits.h"
#include "tessera/ops/kernels/avx512_forms.h"

namespace tessera::ops::kernels::avx512 {
namespace {

template <class Form>
Units<ElementOf<Form>> avx512_units() {
  Units<ElementOf<Form>> units = vector_units<Form>(Isa::Avx512);
  units.own_bytes = int64_t{600} << 10;
  return units;
}

template <class Form>
Units<ElementOf<Form>> units_of_floats() {
  Units<ElementOf<Form>> units = avx512_units<Form>();
  units.max_depth = 768;
  units.backward_queries = 128;
  return units;
}

// Adds the products by digits, if the processor has them.
void add_digits_if_usable(Units<float>& units) {
  if (detect_cpu_features().avx512_vnni) add_digit_products(units);
}

template <class Form>
Units<ElementOf<Form>> tile_units() {
  Units<ElementOf<Form>> units = row_operations<Form>(Isa::Amx);
  units.least_meetings = 64;
  units.multiply = tiles::multiply<Form, float>;
  units.multiply_panel = tiles::multiply_panel<Form>;
  add_plain_products(units);
  return units;
}

}  // namespace

void add_sums(const float* sums, int64_t sum_stride, float beta, float* c, int64_t ldc, int64_t rows,
              int64_t columns) {
  add_sums_to(sums, sum_stride, beta, c, ldc, rows, columns);
}
void add_sums(const float* sums, int64_t sum_stride, float beta, Bf16* c, int64_t ldc, int64_t rows,
              int64_t columns) {
  add_sums_to(sums, sum_stride, beta, c, ldc, rows, columns);
}

const Units<float>& float_units() {
  static const Units<float> table = [] {
    Units<float> units = units_of_floats<float>();
    add_digits_if_usable(units);
    return units;
  }();
  return table;
}

const Units<Bf16>& widened_units() {
  static const Units<Bf16> table = units_of_floats<Widened>();
  return table;
}

const Units<F16>& half_units() {
  static const Units<F16> table = units_of_floats<WidenedHalf>();
  return table;
}

const Units<Bf16>& bf16_units() {
  static const Units<Bf16> table = [] {
    Units<Bf16> units = avx512_units<Bf16>();
    units.max_depth = 1536;
    units.backward_queries = 256;
    return units;
  }();
  return table;
}

// Tile units use up bf16 fast: groups of panels of both operands should lie in the second-level cache. They
// use up the three planes of floats slowly, but these take much room: one operand lies in the cache, and the
// other passes panel by panel.
const Units<float>& float_units_with_tiles() {
  static const Units<float> table = [] {
    Units<float> units = tile_units<Split>();
    add_digits_if_usable(units);
    units.own_bytes = int64_t{900} << 10;
    units.group_bytes = 1;
    units.max_depth = 768;
    units.backward_queries = 64;
    return units;
  }();
  return table;
}

const Units<Bf16>& bf16_units_with_tiles() {
  static const Units<Bf16> table = [] {
    Units<Bf16> units = tile_units<Bf16>();
    units.multiply_narrow = tiles::multiply<Bf16, Bf16>;
    units.own_bytes = units.group_bytes = int64_t{700} << 10;
    units.max_depth = 3072;
    units.backward_queries = 512;
    return units;
  }();
  return table;
}

}  // namespace tessera::ops::kernels::avx512
#endif
