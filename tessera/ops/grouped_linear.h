// Linear layers that each multiply a group of the rows, where only the device knows how many rows each group
// has.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/activation.h"

namespace tessera::ops {

// Tells whether x's device multiplies groups of rows without the host's knowing their sizes: x and weights of
// bfloat16 on a GPU of compute capability 9.0 or later, with widths that are multiples of 8.
bool has_grouped_products(const at::Tensor& x, const at::Tensor& weight);

// Tells whether the weights lie in one piece of memory at equal distances, as the weights of a loaded model
// do: grouped_linear() then reads them in place. Otherwise it copies them into one tensor for as long as a
// product takes.
bool lie_in_line(at::TensorList weights);

// y[i] = x[i] weights[g]^T for the group g of row i. x: [rows, in]; weights: [out, in] each; ends: [groups],
// int32 on x's device, the end of each group's rows, rising to the number of rows; a group may have none.
// Result: [rows, out]. x and the weights must be as has_grouped_products() says. A weight's gradient is
// rounded to bfloat16 in each call before it is added to a direct gradient (direct_gradient.h), and zero if
// its group has no row. x may have a source, whose value the backward takes, but not one that collects
// gradients.
at::Tensor grouped_linear(const Activation& x, const at::Tensor& ends,
                          const std::vector<at::Tensor>& weights);

}  // namespace tessera::ops
