// A tensor that takes part in a gather of several at once.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::comm {

// `output` gets every rank's `input`, in the order of the ranks. The tensors are contiguous and of one type.
struct GatherPart {
  at::Tensor output;
  at::Tensor input;             // may be this rank's part of output
  std::vector<int64_t> counts;  // elements of each rank's input, the same on all ranks; may be 0
};

}  // namespace tessera::comm
