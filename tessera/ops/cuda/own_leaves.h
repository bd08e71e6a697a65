// The leaves of the ops (leaf.h) on Tessera's own CUDA kernels.
#pragma once

#include "tessera/core/shared_library.h"
#include "tessera/ops/cuda/kernels.h"
#include "tessera/ops/leaf.h"

namespace tessera::ops::cuda {

// Sets the kernels that the leaves of own_leaves() start from now on, which must live until others are set.
// To be called before the first of these leaves.
void use_kernels(const CudaKernels& kernels);

// Returns aten_leaves() with those kernels replacing LibTorch's operations, in the types that they take.
Leaves own_leaves();

// Returns own_leaves() of the kernels of a library; aten_leaves() if the library is missing, or with a
// warning if it does not fit.
Leaves leaves_of(const SharedLibrary& library);

}  // namespace tessera::ops::cuda
