// Views a box of a tensor as a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/parallel/layout.h"

namespace tessera::parallel {

// Returns the elements of `whole` that lie in `box`, as a view.
at::Tensor box_part(at::Tensor whole, const Box& box);

}  // namespace tessera::parallel
