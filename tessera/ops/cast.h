// Copies that change the type.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Writes `from` into `to`, rounded to `to`'s type (to nearest, ties to even). Sizes must be equal. Does what
// at::Tensor::copy_ does, without a graph, but dense float32 to bfloat16, the cast of every weight in every
// step, runs at the speed of the memory.
void cast_into(const at::Tensor& to, const at::Tensor& from);

}  // namespace tessera::ops
