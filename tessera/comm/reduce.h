// Reductions built on the byte operations of a backend: for ranks that do not share a machine.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/backend.h"
#include "tessera/comm/options.h"
#include "tessera/comm/scatter_part.h"

namespace tessera::comm::detail {

// output gets piece number rank() of every rank's input, combined in the order of the ranks. bfloat16 and
// float16 are summed in float32. Contiguous CPU tensors; input.numel() = output.numel() * size().
void reduce_scatter(Backend& backend, const at::Tensor& output, const at::Tensor& input, ReduceOp op);

// The same for several tensors, as in Communicator: packed into one message.
void reduce_scatter(Backend& backend, const std::vector<ScatterPart>& parts, at::ScalarType type,
                    ReduceOp op);

// In place. Small tensors are gathered whole and combined by every rank; larger ones are reduce-scattered
// and gathered.
void all_reduce(Backend& backend, const at::Tensor& tensor, ReduceOp op);

}  // namespace tessera::comm::detail
