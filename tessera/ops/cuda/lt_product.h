// Products that cuBLASLt makes and LibTorch has no call for.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include <ATen/core/Tensor.h>

#include "tessera/ops/cuda/lt_library.h"
#include "tessera/ops/e4m3.h"

namespace tessera::ops::cuda {

// Products by one library. They run on the current stream of their tensors' device, with memory of LibTorch's
// allocator, and the host waits for none; equal calls give equal bits. Thread-safe.
class LtProducts {
 public:
  explicit LtProducts(const LtLibrary& library) : library_(library) {}

  // sum += a b^T in place, as Leaves::multiply_e4m3: the product in float32 is added before anything is
  // rounded. False where cuBLASLt does not make this one (types, sizes, places in memory), and nothing was
  // done. Throws E-INTERNAL-CUBLASLT where the library fails.
  bool add_scaled(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b);

 private:
  // Device, sizes, type of the sum, and alignment of the three.
  using Key = std::array<int64_t, 8>;
  struct Descriptors;

  void check(lt::Status status, const char* function) const;
  lt::Handle handle(at::Device device);
  std::optional<lt::Heuristic> algorithm(const Key& key, lt::Handle handle, const Descriptors& of);

  const LtLibrary library_;
  std::mutex mutex_;
  std::map<int64_t, lt::Handle> handles_;  // by device, never destroyed
  std::map<Key, std::optional<lt::Heuristic>> algorithms_;
};

// By the library that LibTorch's CUDA part has loaded; null where that cannot be opened, which the first call
// warns of.
LtProducts* lt_products();

}  // namespace tessera::ops::cuda
