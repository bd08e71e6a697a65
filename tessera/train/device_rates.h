// What a device reaches in matrix products and copies, measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace tessera::train {

struct DeviceRate {
  std::string name;     // "bf16 products"
  double value = 0.0;   // 0 where it could not be measured
  std::string unit;     // "TFLOP/s" or "GB/s"
  std::string problem;  // why not, in one line
};

struct DeviceRateOptions {
  int64_t size = 8192;                    // of the square matrices
  int64_t copy_bytes = int64_t{1} << 30;  // read once and written once
  int rounds = 10;
};

// Of LibTorch's products, of random numbers (of zeros they are faster): bf16, fp8 (e4m3 with one scale a
// matrix, into bf16), float32 as it is and through TF32; of a copy on the device, counting what is read and
// what is written; and of a copy from pinned memory of the host. Takes 4 x size^2 x 4 bytes and 2 x
// copy_bytes at most.
std::vector<DeviceRate> measure_device_rates(c10::Device device, const DeviceRateOptions& options = {});

}  // namespace tessera::train
