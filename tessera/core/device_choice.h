// The device that a recipe or a command names.
#pragma once

namespace tessera {

enum class DeviceChoice {
  Auto,  // CUDA where LibTorch has a device of it, else the CPU
  Cpu,
  Cuda,
};

}  // namespace tessera
