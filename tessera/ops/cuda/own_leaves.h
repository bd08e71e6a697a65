// The leaves of the ops (leaf.h) on Tessera's own CUDA kernels.
#pragma once

#include "tessera/core/shared_library.h"
#include "tessera/ops/cuda/kernels.h"
#include "tessera/ops/leaf.h"

namespace tessera::ops::cuda {

// The kernels that the leaves of own_leaves() start from now on, which live until others are given. Before
// the first of them is called.
void use_kernels(const CudaKernels& kernels);

// aten_leaves() with those kernels in place of what they do, in the types that they take.
Leaves own_leaves();

// own_leaves() of the kernels of a library; aten_leaves() where it is missing or does not fit, which is
// warned of.
Leaves leaves_of(const SharedLibrary& library);

}  // namespace tessera::ops::cuda
