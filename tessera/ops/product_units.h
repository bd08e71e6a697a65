// Whether products run on own kernels or in LibTorch.
#pragma once

#include "tessera/ops/kernels/units.h"

namespace tessera::ops {

// The units that products of T = float or Bf16 run on, the best that there are; null, for LibTorch, where
// there are none or where TESSERA_PRODUCTS=libtorch. A rule and no measurement: the choice decides the last
// bits, so it must not differ from run to run or from rank to rank. `tessera doctor` measures both ways.
// Throws E-CONFIG-ENVIRONMENT where the variable holds anything else than `own` or `libtorch`.
template <class T>
const kernels::Units<T>* product_units();

}  // namespace tessera::ops
