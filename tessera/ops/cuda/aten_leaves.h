// The leaves of the ops (leaf.h) for CUDA in LibTorch's operations.
#pragma once

#include "tessera/ops/leaf.h"

namespace tessera::ops::cuda {

// What LibTorch has for CUDA alone is called for tensors that lie there; tensors elsewhere get the plain
// formula in its place.
const Leaves& aten_leaves();

}  // namespace tessera::ops::cuda
