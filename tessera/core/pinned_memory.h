// Host memory that a device's streams copy from and to.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace tessera {

// A dense tensor on the host, without values. Where `device` has streams its memory is pinned: a non-blocking
// copy from or to it runs in the turn of the current stream, and neither end may be written, nor the target
// read, but behind it. LibTorch keeps what is freed for later and rounds each size up to a power of two.
at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type, c10::Device device);

}  // namespace tessera
