// Computes a graph of cuDNN's operations by plain loops in float64 over memory of the host.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tessera/ops/cuda/cudnn_library.h"

namespace tessera::testing {

using Sizes = std::array<int64_t, 4>;

struct HostTensor {
  ops::cuda::dnn::DataType type;
  Sizes sizes, strides;
  int64_t number;
  bool is_virtual;
  const HostTensor* offsets;  // where each document begins; null if documents lie in dim 0
};

// One operation. A pointwise one computes y = x <mode> b, or t ? x : b; the others compute y from x and b.
struct HostOp {
  enum class Kind { Pointwise, Reduction, Product, Reshape } kind;
  int32_t mode = 0;  // cuDNN's mode of a pointwise operation or a reduction
  int64_t axis = -1;
  const HostTensor *x = nullptr, *b = nullptr, *t = nullptr, *y = nullptr;
  const HostTensor *rows = nullptr, *columns = nullptr, *depth = nullptr;  // counts of a product, or null
};

// Runs the operations in their order. Elements behind the end of a document are NaN when they are read, and
// writes to them are ignored; elements of a product behind the counted rows and columns are NaN. Returns
// false for an operation that cuDNN does not have. `memory` holds the address of each tensor by its number.
bool run_on_host(const std::vector<HostOp>& ops, const std::vector<const HostTensor*>& tensors,
                 const std::map<int64_t, void*>& memory);

}  // namespace tessera::testing
