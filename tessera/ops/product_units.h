// Whether products run on own kernels or in LibTorch.
#pragma once

#include "tessera/ops/kernels/units.h"

namespace tessera::ops {

// The units that large products of T = float or Bf16 run on; null: in LibTorch. Where TESSERA_PRODUCTS says
// neither `own` nor `libtorch`, tile units are taken, and for vector units the first call measures both (some
// ms): LibTorch multiplies if it is by a quarter faster, so that noise does not decide. The answer stays.
// Throws E-CONFIG-PRODUCTS where the variable holds anything else.
template <class T>
const kernels::Units<T>* product_units();

}  // namespace tessera::ops
