// The leaves of the ops (leaf.h) for CUDA in LibTorch's operations.
#pragma once

#include "tessera/ops/leaf.h"

namespace tessera::ops::cuda {

// What LibTorch has for CUDA alone is called for tensors that lie there; tensors elsewhere get the plain
// formula in its place.
const Leaves& aten_leaves();

// By LibTorch's own product of e4m3 (at::_scaled_mm), which some processors have too; aten_leaves() takes it
// where the device has units for it.
Leaf<&Leaves::multiply_e4m3> scaled_product;

}  // namespace tessera::ops::cuda
