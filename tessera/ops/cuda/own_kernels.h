// Tessera's own CUDA kernels (kernels.h), as far as this process has them.
#pragma once

#include <string>

#include "tessera/core/shared_library.h"
#include "tessera/ops/cuda/kernels.h"

namespace tessera::ops::cuda {

struct OwnKernels {
  const CudaKernels* table = nullptr;  // for the life of the process
  std::string why_not;                 // in one line, where there is no table
};

// The table of a library, if it is of this program's version and size.
OwnKernels find_kernels(const SharedLibrary& library);

// Of libtessera_cuda.so, as core/cuda_library.h has it now.
OwnKernels own_kernels();

}  // namespace tessera::ops::cuda
