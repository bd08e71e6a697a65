// Parts that the tables of all kinds of vector unit have in common. Included by units_*.cpp after vec_*.h,
// and before the forms that a kind of unit adds; TESSERA_VEC names the namespace of vec_*.h.
#pragma once

#include "tessera/ops/kernels/vector_attention.h"
#include "tessera/ops/kernels/vector_multiply.h"
#include "tessera/ops/kernels/vector_pack.h"
#include "tessera/ops/kernels/vector_plain.h"
//
#include "tessera/ops/kernels/vector_coded.h"

namespace tessera::ops::kernels::TESSERA_VEC {

// Returns a table of packing and adding up alone.
template <class Form>
Units<ElementOf<Form>> packing_operations(Isa isa) {
  using T = ElementOf<Form>;
  Units<T> units{};
  units.isa = isa;
  units.block_bytes = kBlockBytes<Form>;
  units.pack = pack<Form>;
  if constexpr (!std::is_same_v<T, float>) units.add_sums = add_sums_to<T>;
  return units;
}

// Adds the products of few rows, which need no units but vectors.
inline void add_plain_products(Units<float>& units) {
  units.most_few_rows = kMostFewRows;
  units.pack_few = pack_few;
  units.multiply_few = multiply_few<float>;
  units.multiply_few_bf16 = multiply_few<Bf16>;
  units.multiply_few_coded = multiply_few_coded;
  units.multiply_plain = multiply_plain;
}
template <class T>
void add_plain_products(Units<T>&) {}

// Returns a table of everything but the products and the sizes that go with them.
template <class Form>
Units<ElementOf<Form>> row_operations(Isa isa) {
  using T = ElementOf<Form>;
  Units<T> units = packing_operations<Form>(isa);
  units.softmax = softmax<Form>;
  units.softmax_end = softmax_end;
  units.softmax_backward = softmax_backward<Form>;
  units.scale_columns = scale_columns;
  units.turn_columns = turn_columns<T>;
  units.row_dots = row_dots<T>;
  return units;
}

template <class Form>
Units<ElementOf<Form>> vector_units(Isa isa) {
  using T = ElementOf<Form>;
  constexpr bool kIsHalf = std::is_same_v<Form, WidenedHalf>;
  Units<T> units;
  if constexpr (kIsHalf) {
    units = packing_operations<Form>(isa);
  } else {
    units = row_operations<Form>(isa);
  }
  // LibTorch is the other way, and is slow for bf16 and float16 where there are no units for them.
  constexpr bool kIsWidened = kIsHalf || std::is_same_v<Form, Widened>;
  units.least_meetings = kIsWidened ? 1 : 6;
  if (kIsWidened) units.least_depth = 2;
  units.group_bytes = 1;
  units.multiply = multiply<Form, float>;
  units.multiply_panel = multiply_panel<Form>;
  add_plain_products(units);
  if constexpr (!std::is_same_v<T, float>) units.multiply_narrow = multiply<Form, T>;
  return units;
}

}  // namespace tessera::ops::kernels::TESSERA_VEC
