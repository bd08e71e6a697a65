// Takes rows of a matrix in another order, and more than once.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Returns x's rows `rows` ([n], int64, on x's device): [n, width]. Each row of x occurs `copies` times among
// them: n = copies * rows of x. `places` ([n], int64): where in the result the copies of row 0 lie, then
// those of row 1, and so on. The gradients of copies are summed in that order.
at::Tensor take_rows(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places, int64_t copies);

}  // namespace tessera::ops
