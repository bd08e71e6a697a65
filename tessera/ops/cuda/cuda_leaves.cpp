// The table of leaves for CUDA.
#include "tessera/core/cuda_library.h"
#include "tessera/core/log.h"
#include "tessera/ops/cuda/aten_leaves.h"
#include "tessera/ops/cuda/own_kernels.h"
#include "tessera/ops/cuda/own_leaves.h"

namespace tessera::ops {

// A library that does not fit ends no run: LibTorch computes the same, only more slowly.
Leaves cuda::leaves_of(const SharedLibrary& library) {
  if (library.is_missing()) return aten_leaves();
  const OwnKernels own = find_kernels(library);
  if (own.table != nullptr) {
    use_kernels(*own.table);
    return own_leaves();
  }
  log::warn(own.why_not + ". LibTorch's kernels are used instead. hint: build or install both together");
  return aten_leaves();
}

const Leaves& cuda_leaves() {
  static const Leaves kLeaves = cuda::leaves_of(tessera::cuda::own_kernels_library());
  return kLeaves;
}

}  // namespace tessera::ops
