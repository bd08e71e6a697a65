// Products that cuBLASLt makes and for which LibTorch has no call.
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

  // Computes sum += a b^T in place, as Leaves::multiply_e4m3: the product in float32 is added before anything
  // is rounded. Does nothing and returns false if cuBLASLt does not make this product (its types, sizes or
  // places in memory). Throws E-INTERNAL-CUBLASLT if the library fails.
  bool add_scaled(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b);

 private:
  // A key has the device, the sizes, the type of the sum, and the alignments of a, b and the sum.
  using Key = std::array<int64_t, 8>;
  struct Descriptors;

  void check(lt::Status status, const char* function) const;
  lt::Handle handle(at::Device device);
  std::optional<lt::Heuristic> algorithm(const Key& key, lt::Handle handle, const Descriptors& of);

  const LtLibrary library_;
  std::mutex mutex_;
  std::map<int64_t, lt::Handle> handles_;  // by device index, never destroyed
  // The algorithm for each kind of call; empty if cuBLASLt has refused it.
  std::map<Key, std::optional<lt::Heuristic>> algorithms_;
};

// Returns the products of the library that LibTorch's CUDA part has loaded; null if that cannot be opened, of
// which the first call warns.
LtProducts* lt_products();

}  // namespace tessera::ops::cuda
