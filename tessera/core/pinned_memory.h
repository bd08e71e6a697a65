// Host memory that a device's streams copy from and to.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace tessera {

// A dense tensor on the host, without values. Where `device` has streams its memory is pinned: a non-blocking
// copy from or to it runs in the turn of the current stream, and neither end may be written, nor the target
// read, but behind it. LibTorch keeps what is freed for later and rounds each size up to a power of two.
at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type, c10::Device device);

// Tensors as of empty_pinned() that stay for long: they lie one behind the other in few pieces of memory,
// whose sizes are powers of two already.
class PinnedArena {
 public:
  // `num_bytes`: what all tensors that are asked for will have, at least about.
  PinnedArena(c10::Device device, int64_t num_bytes) : device_(device), left_(num_bytes) {}
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type);

 private:
  static constexpr int64_t kAlignment = 512;  // of a device's widest access, and of what copies like best

  c10::Device device_;
  int64_t left_, used_ = 0;  // still to be asked for; of the piece
  at::Tensor piece_;
};

// Throws Error(Memory) with `code` where `what` is more than the host has free.
void require_host_memory(int64_t num_bytes, const std::string& code, const std::string& what,
                         const std::string& hint);

}  // namespace tessera
