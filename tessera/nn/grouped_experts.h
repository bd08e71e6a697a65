// Experts whose rows are multiplied together, so that nobody waits to know how many each has.
#pragma once

#include "tessera/nn/sparse_mlp.h"

namespace tessera::nn {

// Whether run_grouped() takes these: where the device multiplies groups (ops/grouped_linear.h), of experts
// without biases, adapters, fp8 and a parallel layout of their own, whose weights lie in line
// (ops::lie_in_line()) or that have so many rows that a copy of the weights is small beside them: 16 for each
// expert.
bool runs_grouped(const at::Tensor& rows, const Experts& experts);

// As run_experts(), for rows that end at `ends` (ExpertCore::run()). Its products are the same numbers in
// bfloat16; gradients of weights are rounded to it.
at::Tensor run_grouped(const at::Tensor& rows, const at::Tensor& ends, const Experts& experts);

}  // namespace tessera::nn
