// A stub of libtessera_cuda.so for tests that only look for its table and call no entry.
#include "tessera/ops/cuda/kernels.h"

namespace {

using tessera::ops::cuda::CudaKernels;

constexpr CudaKernels kTable = {
#if defined(TESSERA_STUB_OLDER)
    .version = tessera::ops::cuda::kCudaKernelsVersion - 1,
#else
    .version = tessera::ops::cuda::kCudaKernelsVersion,
#endif
#if defined(TESSERA_STUB_SMALLER)
    .size = sizeof(CudaKernels) - sizeof(void*),
#else
    .size = sizeof(CudaKernels),
#endif
};

}  // namespace

#if defined(TESSERA_STUB_EMPTY)
extern "C" const CudaKernels* tessera_cuda_kernels() { return nullptr; }
#elif defined(TESSERA_STUB_NAMELESS)
extern "C" const CudaKernels* other_kernels() { return &kTable; }
#else
extern "C" const CudaKernels* tessera_cuda_kernels() { return &kTable; }
#endif
