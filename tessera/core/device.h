// Where tensors lie.
#pragma once

#include <c10/core/Device.h>

namespace tessera {

// The device of tensors that are host data by nature, whatever the model's device: what is read from files,
// sent by host communicators, or read back.
inline constexpr c10::DeviceType kHost = c10::DeviceType::CPU;

}  // namespace tessera
