// Combines the pieces of several ranks: their sum, maximum or minimum.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/options.h"

namespace tessera::comm::detail {

// Computes output = pieces[0] op pieces[1] op ..., in this order; bfloat16 and float16 are summed in float32.
// All tensors have one shape and type; `output` may be one of the pieces.
void combine(const at::Tensor& output, const std::vector<at::Tensor>& pieces, ReduceOp op);

}  // namespace tessera::comm::detail
