// Where tensors lie.
#pragma once

#include <cstdint>

#include <c10/core/TensorOptions.h>

#include "tessera/core/device_choice.h"

namespace tessera {

// The device of tensors that are host data by nature, whatever the model's device: what is read from files,
// sent by host communicators, or read back.
inline constexpr c10::DeviceType kHost = c10::DeviceType::CPU;

// Options of such tensors.
inline c10::TensorOptions on_host(c10::ScalarType type) { return c10::TensorOptions(kHost).dtype(type); }

// The device of a process: of the CUDA devices of a machine its ranks take one each, in turn. Throws
// E-CONFIG-DEVICE for CUDA where LibTorch has no device of it.
c10::Device resolve_device(const DeviceChoice& choice, int64_t local_rank = 0);

// Makes it the current device of this thread. LibTorch's calls on a device come back to the current one, and
// CUDA then makes a context there: on device 0, where a thread has not said another, which takes some 0.5 GB
// of its memory for each process. Every thread that calls for a device says so first. Nothing for the host.
void use_device(c10::Device device);

// Whether the device is one of CUDA of at least this compute capability.
bool has_capability(c10::Device device, int major, int minor);

}  // namespace tessera
