// The CUDA devices that LibTorch can use.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct CudaDevices {
  int64_t count = 0;
  std::string why_none;  // one line, without an end; empty where there is one
};

// Opens LibTorch's CUDA part (cuda_library.h) and asks it. Where that is not open LibTorch is asked nothing,
// as its first answer holds for the whole process. Never throws for what a machine lacks.
CudaDevices find_cuda_devices();

}  // namespace tessera
