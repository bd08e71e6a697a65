// The device on which tensors lie.
#pragma once

#include <cstdint>

#include <c10/core/TensorOptions.h>

#include "tessera/core/device_choice.h"

namespace tessera {

// The device of tensors that are host data by nature, whatever the model's device: what is read from files,
// sent by host communicators, or read back.
inline constexpr c10::DeviceType kHost = c10::DeviceType::CPU;

// Options of tensors on the host.
inline c10::TensorOptions on_host(c10::ScalarType type) { return c10::TensorOptions(kHost).dtype(type); }

// Gives the device of a process. If `choice` names no device by its number, the ranks of a machine take its
// CUDA devices in turn, by `local_rank`. Auto gives the host if there is no CUDA device. Throws
// E-CONFIG-DEVICE if CUDA is asked for and LibTorch has no device of it, or not the one that is named.
c10::Device resolve_device(const DeviceChoice& choice, int64_t local_rank = 0);

// Makes `device` the current device of this thread; does nothing for the host. LibTorch's calls on a device
// come back to the current one, and CUDA then makes a context there: on device 0 if a thread has not chosen
// another, which takes some 0.5 GB of its memory for each process. So every thread that calls for a device
// says so here first.
void use_device(c10::Device device);

// Tells whether the device is one of CUDA of at least this compute capability.
bool has_capability(c10::Device device, int major, int minor);

}  // namespace tessera
