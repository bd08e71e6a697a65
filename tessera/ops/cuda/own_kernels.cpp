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

OwnKernels find_kernels(const SharedLibrary& library) {
  OwnKernels found{nullptr, library.why_not()};
  if (!library.is_usable()) return found;
  CudaKernelsFunction give = nullptr;
  const CudaKernels* const table = library.has(give, kCudaKernelsSymbol) ? give() : nullptr;
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

OwnKernels own_kernels() { return find_kernels(tessera::cuda::own_kernels_library()); }

}  // namespace tessera::ops::cuda
