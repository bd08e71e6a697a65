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
#pragma GCC target("avx2,fma")
#define TESSERA_VEC avx2

#include "tessera/ops/kernels/vec_avx2.h"
//
#include "tessera/ops/kernels/vector_attention.h"
#include "tessera/ops/kernels/vector_multiply.h"
#include "tessera/ops/kernels/vector_pack.h"

namespace tessera::ops::kernels::avx2 {

const Units<float>& float_units() {
  static const Units<float> table = [] {
    Units<float> units{};
    units.isa = Isa::Avx2;
    units.block_bytes = kBlockBytes<float>;
    units.least_meetings = 6;
    units.own_bytes = int64_t{200} << 10;
    units.group_bytes = 1;
    units.max_depth = 384;
    units.backward_queries = 64;
    units.pack = pack<float>;
    units.multiply = multiply<float, float>;
    units.multiply_panel = multiply_panel<float>;
    units.softmax = softmax<float>;
    units.softmax_end = softmax_end;
    units.softmax_backward = softmax_backward<float>;
    units.scale_columns = scale_columns;
    units.turn_columns = turn_columns<float>;
    units.row_dots = row_dots<float>;
    return units;
  }();
  return table;
}

}  // namespace tessera::ops::kernels::avx2
#endif
