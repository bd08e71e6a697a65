// Host memory that a device's streams copy from and to.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace tessera {

// Makes a dense tensor on the host, without values. If `device` has streams, its memory is pinned: a
// non-blocking copy from or to it runs in the turn of the current stream. Until that is over, neither end may
// be written, nor the target read. LibTorch keeps memory that is freed for later and rounds each size up to a
// power of two.
at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type, c10::Device device);

// Makes tensors as empty_pinned() does, for tensors that stay for long: they lie one behind the other in few
// pieces of memory, whose sizes are powers of two already.
class PinnedArena {
 public:
  // `num_bytes` is about what all tensors that will be asked for have together.
  PinnedArena(c10::Device device, int64_t num_bytes) : device_(device), left_(num_bytes) {}
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type);

 private:
  static constexpr int64_t kAlignment = 512;  // enough for a device's widest access and for fast copies

  c10::Device device_;
  int64_t left_, used_ = 0;  // bytes still to be asked for; bytes of the piece that are taken
  at::Tensor piece_;
};

// Throws Error(Memory), named `code`, if `what` needs more bytes than the host has free.
void require_host_memory(int64_t num_bytes, const std::string& code, const std::string& what,
                         const std::string& hint);

}  // namespace tessera
