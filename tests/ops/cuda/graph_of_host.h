// What a graph of cuDNN's operations computes, by plain loops in float64 over memory of the host.
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
  const HostTensor* offsets;  // or null
};

// y = x mode b, or t ? x : b, of pointwise operations; y from x of others.
struct HostOp {
  enum class Kind { Pointwise, Reduction, Product, Reshape } kind;
  int32_t mode = 0;  // of a pointwise operation or a reduction
  int64_t axis = -1;
  const HostTensor *x = nullptr, *b = nullptr, *t = nullptr, *y = nullptr;
  const HostTensor *rows = nullptr, *columns = nullptr, *depth = nullptr;  // of a product, or null
};

// Runs operations in their order. Elements of a document behind its end are NaN when they are read and stay
// when they are written; those of a product behind the counted rows and columns are NaN. False for what
// cuDNN has no operation for. memory: by number.
bool run_on_host(const std::vector<HostOp>& ops, const std::vector<const HostTensor*>& tensors,
                 const std::map<int64_t, void*>& memory);

}  // namespace tessera::testing
