// The leaves of the ops (leaf.h) for CUDA in LibTorch's operations.
#pragma once

#include "tessera/ops/leaf.h"

namespace tessera::ops::cuda {

// The table of leaves. Operations that LibTorch has for CUDA alone are called for tensors that lie there;
// tensors elsewhere get the plain formula instead.
const Leaves& aten_leaves();

// The product by LibTorch's own call for e4m3 (at::_scaled_mm), which some processors have too; aten_leaves()
// takes it if the device has units for it.
Leaf<&Leaves::multiply_e4m3> scaled_product;

}  // namespace tessera::ops::cuda
