// The tensors that a run carries from one step to the next: parameters and optimizer states.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

// One of these tensors as this rank owns it. The owner may keep it in any form, such as 8-bit blocks; `get`
// and `set` convert from and to plain values.
struct StateTensor {
  std::string name;                  // the same on all ranks, and unique among the tensors
  parallel::Layout layout;           // of the whole tensor
  std::vector<int64_t> coordinates;  // of this rank, on the layout's axes
  // Returns the values in box(), contiguous, of type layout.dtype(). They may be the owner's own memory.
  std::function<at::Tensor()> get;
  // Takes values of this form. They may be the tensor that get() returned, changed in place.
  std::function<void(const at::Tensor& values)> set;

  parallel::Box box() const { return layout.local_box(coordinates); }
};

// Returns the state tensor whose values lie in `values`: get() returns that memory, and set() writes into it.
StateTensor state_tensor(std::string name, parallel::Layout layout, std::vector<int64_t> coordinates,
                         const at::Tensor& values);

}  // namespace tessera::checkpoint
