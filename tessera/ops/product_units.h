// The choice whether products on the host run on own kernels or in LibTorch.
#pragma once

#include "tessera/ops/kernels/units.h"

namespace tessera::ops {

// Returns the units that products of T = float or Bf16 run on, the best that there are; null stands for
// LibTorch, if there are none or TESSERA_PRODUCTS=libtorch. The choice follows a rule and no measurement: it
// decides the last bits of results, so it must not differ from run to run or from rank to rank. `tessera
// doctor` measures both ways. Throws E-CONFIG-ENVIRONMENT if the variable holds anything else than `own` or
// `libtorch`.
template <class T>
const kernels::Units<T>* product_units();

// Tells whether own products of bfloat16 run on units that are made for it. Without them bfloat16 is widened
// and runs at float32's speed, or runs in LibTorch, whose speed depends on the processor.
bool has_bf16_units();

}  // namespace tessera::ops
