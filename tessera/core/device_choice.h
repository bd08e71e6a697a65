// The device that a recipe or a command names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/core/error.h"

namespace tessera {

enum class DeviceKind {
  Auto,  // CUDA where LibTorch has a device of it, else the CPU
  Cpu,
  Cuda,
};

struct DeviceChoice {
  DeviceKind kind = DeviceKind::Auto;
  int number = -1;  // of one CUDA device; -1: none is named

  // Reads auto, cpu, cuda, or one device as in cuda:1, in letters of any case; gives nothing for another
  // text.
  static std::optional<DeviceChoice> parse(std::string_view text);
  std::string text() const;
};

// Makes the error E-CONFIG-DEVICE that refuses a device named by its number if several ranks compute.
Error one_process_only(const DeviceChoice& device, int64_t num_ranks);

}  // namespace tessera
