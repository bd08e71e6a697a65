// The squares of tensors' Euclidean norms.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Returns a float64 scalar for each tensor, on the tensors' device, summed in pieces that do not depend on
// the number of threads: the bits are the same for any number. Tensors are float32, float64 or bfloat16 on
// one device; one that is not dense is copied. No graph.
std::vector<at::Tensor> sums_of_squares(const std::vector<at::Tensor>& all);
// Returns the sum of squares of one tensor.
at::Tensor sum_of_squares(const at::Tensor& tensor);

}  // namespace tessera::ops
