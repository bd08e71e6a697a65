// Multiplies the rows of all experts in grouped products, so that the host need not wait to learn how many
// rows each expert has.
#pragma once

#include "tessera/nn/sparse_mlp.h"

namespace tessera::nn {

// Returns whether run_grouped() can run these experts. The device must multiply groups
// (ops/grouped_linear.h), and the experts must have no biases, adapters, fp8 products or parallel layout of
// their own. Besides, their weights must lie in line (ops::lie_in_line()), or there must be at least 16 rows
// for each expert on average, so that copying the weights is cheap beside the products.
bool runs_grouped(const at::Tensor& rows, const Experts& experts);

// Does what run_experts() does, for rows [n, hidden_size] that are sorted by expert; `ends` is as in
// ExpertCore::run(). In bfloat16 the results are the same numbers; gradients of weights are rounded to
// bfloat16.
at::Tensor run_grouped(const at::Tensor& rows, const at::Tensor& ends, const Experts& experts);

}  // namespace tessera::nn
