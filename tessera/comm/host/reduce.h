// Reductions through a transport: for ranks that do not share a machine.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/host/transport.h"
#include "tessera/comm/options.h"
#include "tessera/comm/scatter_part.h"

namespace tessera::comm::detail {

// As in Communicator, in one message: the pieces of every rank are combined in the order of the ranks;
// bfloat16 and float16 are summed in float32. Contiguous CPU tensors.
void reduce_scatter(Transport& transport, const std::vector<ScatterPart>& parts, at::ScalarType type,
                    ReduceOp op);

// In place. Small tensors are gathered whole and combined by every rank; larger ones are reduce-scattered
// and gathered.
void all_reduce(Transport& transport, const at::Tensor& tensor, ReduceOp op);

}  // namespace tessera::comm::detail
