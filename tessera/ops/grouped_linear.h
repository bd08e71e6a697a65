// Linear layers of which each multiplies some of the rows, where their numbers lie on the device.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/activation.h"

namespace tessera::ops {

// Whether the device of x multiplies groups of rows without the host's knowing how many there are: x and
// weights of bfloat16 on a GPU of compute capability 9.0 or later, with widths that are multiples of 8.
bool has_grouped_products(const at::Tensor& x, const at::Tensor& weight);

// Whether weights lie in one piece of memory at equal distances, as the weights of a loaded model do:
// grouped_linear() reads them there. The others are copied into one tensor for as long as a product takes.
bool lie_in_line(at::TensorList weights);

// y[i] = x[i] weights[g]^T for the group g of row i. x: [rows, in]; weights: [out, in] each; ends: [groups],
// int32 on x's device, where each group's rows end, rising to the number of rows; a group may have none. All
// as has_grouped_products() says. A weight's gradient is rounded to bfloat16 for each call before it is added
// to a direct gradient (direct_gradient.h), and zero where its group has no row. Of x's source, whose value
// is taken in the backward, none that collects gradients.
at::Tensor grouped_linear(const Activation& x, const at::Tensor& ends,
                          const std::vector<at::Tensor>& weights);

}  // namespace tessera::ops
