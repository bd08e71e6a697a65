// The square of a tensor's Euclidean norm.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// A float64 scalar on the tensor's device, summed in pieces that do not depend on the number of threads: the
// same bits for any. For float32, float64 or bfloat16; a tensor that is not dense is copied. No graph.
at::Tensor sum_of_squares(const at::Tensor& tensor);

}  // namespace tessera::ops
