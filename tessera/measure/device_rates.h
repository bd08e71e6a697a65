// Measures what a device reaches in matrix products and copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace tessera::measure {

struct DeviceRate {
  std::string name;     // such as "bf16 products"
  double value = 0.0;   // 0 where it could not be measured
  std::string unit;     // "TFLOP/s" or "GB/s"
  std::string problem;  // why it could not be measured, in one line
};

struct DeviceRateOptions {
  int64_t size = 8192;                    // of the square matrices
  int64_t copy_bytes = int64_t{1} << 30;  // read once and written once
  int rounds = 10;
};

// Measures LibTorch's products of random numbers (products of zeros are faster): in bf16, in fp8 (e4m3 with
// one scale a matrix, into bf16), in float32 as it is and, on CUDA, through TF32. Then a copy on the device,
// counting the bytes that are read and those that are written, and on CUDA a copy from pinned memory of the
// host. Needs 4 x size^2 x 4 bytes and 2 x copy_bytes at most.
std::vector<DeviceRate> measure_device_rates(c10::Device device, const DeviceRateOptions& options = {});

}  // namespace tessera::measure
