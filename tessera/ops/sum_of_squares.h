// The square of a tensor's Euclidean norm.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Summed in float64, in pieces that do not depend on the number of threads: the same bits for any. For CPU
// tensors of float32, float64 or bfloat16; a tensor that is not dense is copied. No graph.
double sum_of_squares(const at::Tensor& tensor);

}  // namespace tessera::ops
