#include "tessera/ops/cuda/own_kernels.h"

#include <cstdio>

#include "tessera/core/cuda_library.h"

namespace tessera::ops::cuda {
namespace {

std::string describe(int32_t version, size_t size) {
  char text[64];
  std::snprintf(text, sizeof text, "version %d of %zu bytes", version, size);
  return text;
}

}  // namespace

OwnKernels find_kernels(void* library) {
  void* const address = tessera::cuda::symbol(library, kCudaKernelsSymbol);
  const CudaKernels* const table =
      address == nullptr ? nullptr : reinterpret_cast<CudaKernelsFunction>(address)();
  OwnKernels found;
  if (table == nullptr) {
    found.why_not.append("libtessera_cuda.so has no table '").append(kCudaKernelsSymbol).append("'");
    return found;
  }
  const auto size = static_cast<size_t>(table->size);
  if (table->version == kCudaKernelsVersion && size == sizeof(CudaKernels)) {
    found.table = table;
  } else {
    found.why_not.append("libtessera_cuda.so is another build's: its table is ");
    found.why_not.append(describe(table->version, size));
    found.why_not.append(", need ").append(describe(kCudaKernelsVersion, sizeof(CudaKernels)));
  }
  return found;
}

OwnKernels own_kernels() {
  void* const library = tessera::cuda::own_kernels_library();
  return library == nullptr ? OwnKernels{nullptr, tessera::cuda::why_no_own_kernels()}
                            : find_kernels(library);
}

}  // namespace tessera::ops::cuda
