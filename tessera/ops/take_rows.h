// Rows of a matrix in another order, and more than once.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// x's rows `rows` ([n], int64, on x's device), each row of x `copies` times among them: n = copies * rows of
// x. `places` ([n]): where the copies of row 0 went, then those of row 1. Their gradients are summed in that
// order.
at::Tensor take_rows(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places, int64_t copies);

}  // namespace tessera::ops
