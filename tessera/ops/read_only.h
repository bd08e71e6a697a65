// Reads memory and does nothing else, to measure how fast that is.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Reads all of a dense tensor, of any type.
void read_only(const at::Tensor& x);

}  // namespace tessera::ops
