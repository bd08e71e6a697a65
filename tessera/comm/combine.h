// Sums of the pieces of several ranks.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/options.h"

namespace tessera::comm::detail {

// output = pieces[0] op pieces[1] op ..., in this order; bfloat16 and float16 are summed in float32. Tensors
// of one shape and type; the output may be one of the pieces.
void combine(const at::Tensor& output, const std::vector<at::Tensor>& pieces, ReduceOp op);

}  // namespace tessera::comm::detail
