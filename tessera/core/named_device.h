// One CUDA device by its number, as a choice: cuda:0, cuda:1, ...
#pragma once

#include "tessera/core/device_choice.h"

namespace tessera {

// As many as a machine has.
inline constexpr int kMostCudaDevices = 16;

// The choices behind DeviceChoice::Cuda are devices by number.
constexpr DeviceChoice cuda_device(int index) {
  return static_cast<DeviceChoice>(static_cast<int>(DeviceChoice::Cuda) + 1 + index);
}
// The number of the device that is named; -1 where the choice names none.
constexpr int named_cuda_device(DeviceChoice choice) {
  const int index = static_cast<int>(choice) - static_cast<int>(cuda_device(0));
  return index < 0 ? -1 : index;
}

}  // namespace tessera
