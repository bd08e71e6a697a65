// Descriptions of GPUs that are not there, for cuDNN to compile for.
#pragma once

#include <ostream>
#include <string>

namespace tessera::testing {

struct DescribedDevice {
  const char* name;
  int version, multiprocessors;
  const char* attention;  // part of the names of cuDNN's fastest attention kernels for it
};
inline constexpr DescribedDevice kH100 = {"H100", 900, 132, "native_sdpa_sm90_flash_"};
inline constexpr DescribedDevice kB200 = {"B200", 1000, 148, "native_sdpa_sm100_flash_"};
inline void PrintTo(const DescribedDevice& device, std::ostream* out) { *out << device.name; }

// Returns the device's description in cuDNN's form (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
inline std::string description(const DescribedDevice& device) {
  return R"({"cudaDeviceId":0,"driverVer":13000,"maxGridSize":[2147483647,65535,65535],)"
         R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,)"
         R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
         R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,)"
         R"("l2CacheSize":52428800,"totalGlobalMem":85017624576,"deviceVer":)" +
         std::to_string(device.version) + R"(,"multiProcessorCount":)" +
         std::to_string(device.multiprocessors) + R"(,"deviceName":")" + device.name + "\"}";
}

}  // namespace tessera::testing
