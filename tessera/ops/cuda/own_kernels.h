// Tessera's own CUDA kernels (kernels.h), as far as this process has them.
#pragma once

#include <string>

#include "tessera/core/shared_library.h"
#include "tessera/ops/cuda/kernels.h"

namespace tessera::ops::cuda {

struct OwnKernels {
  const CudaKernels* table = nullptr;  // valid for the life of the process
  std::string why_not;                 // the reason in one line, if there is no table
};

// Returns the table of a library, if it is of this program's version and size.
OwnKernels find_kernels(const SharedLibrary& library);

// Returns the kernels of libtessera_cuda.so, as core/cuda_library.h has it now.
OwnKernels own_kernels();

}  // namespace tessera::ops::cuda
