// What a run carries from one step to the next in tensors: parameters, and what an optimizer keeps of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

// One of these tensors as this rank owns it. The owner may keep it in any form, such as 8-bit blocks: `get`
// and `set` speak in values.
struct StateTensor {
  std::string name;                  // the same on all ranks, of no other tensor
  parallel::Layout layout;           // of the whole
  std::vector<int64_t> coordinates;  // of this rank, on the layout's axes
  // The values in box(), contiguous, of type layout.dtype(). They may be the owner's own memory.
  std::function<at::Tensor()> get;
  // Takes such values; they may be what get() gave, changed in place.
  std::function<void(const at::Tensor& values)> set;

  parallel::Box box() const { return layout.local_box(coordinates); }
};

// The tensor that lies in `values`, which stays the owner's memory.
StateTensor state_tensor(std::string name, parallel::Layout layout, std::vector<int64_t> coordinates,
                         const at::Tensor& values);

}  // namespace tessera::checkpoint
