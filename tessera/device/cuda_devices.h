// The CUDA devices that LibTorch can use.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct CudaDevices {
  int64_t count = 0;
  std::string why_none;  // one line without a full stop; empty if there is a device
};

// Opens LibTorch's CUDA part (cuda_library.h) and asks LibTorch for its devices. If that part is not open,
// LibTorch is asked nothing, because its first answer holds for the whole process. Never throws for what a
// machine lacks.
CudaDevices find_cuda_devices();

}  // namespace tessera
