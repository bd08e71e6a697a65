// Copies that change the type.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// to = from, rounded to `to`'s type (nearest, ties to even). Equal sizes. As at::Tensor::copy_, but dense
// float32 to bfloat16, which every step does with every weight, runs at the speed of the memory. No graph.
void cast_into(const at::Tensor& to, const at::Tensor& from);

}  // namespace tessera::ops
