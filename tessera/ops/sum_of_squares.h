// The squares of tensors' Euclidean norms.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// A float64 scalar for each, on the tensors' device, summed in pieces that do not depend on the number of
// threads: the same bits for any. For float32, float64 or bfloat16 on one device; a tensor that is not dense
// is copied. No graph.
std::vector<at::Tensor> sums_of_squares(const std::vector<at::Tensor>& all);
// Of one.
at::Tensor sum_of_squares(const at::Tensor& tensor);

}  // namespace tessera::ops
