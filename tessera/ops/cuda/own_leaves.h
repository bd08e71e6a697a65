// The leaves of the ops (leaf.h) on Tessera's own CUDA kernels.
#pragma once

#include "tessera/ops/cuda/kernels.h"
#include "tessera/ops/leaf.h"

namespace tessera::ops::cuda {

// aten_leaves() with these kernels in place of what they do, in the types that they take. They must live as
// long as the process; the last ones that were given are those of all tables that were returned.
Leaves own_leaves(const CudaKernels& kernels);

// own_leaves() of the kernels of a library that dlopen() has given; aten_leaves() where that is null or does
// not fit, which is warned of.
Leaves leaves_of(void* library);

}  // namespace tessera::ops::cuda
