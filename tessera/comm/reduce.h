// Reductions that are built on exchanges of bytes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/byte_exchange.h"
#include "tessera/comm/options.h"
#include "tessera/comm/scatter_part.h"

namespace tessera::comm::detail {

// Reduces as Communicator::reduce_scatter_parts() does, in one exchange. The pieces of every rank are
// combined in the order of the ranks; bfloat16 and float16 are summed in float32. Tensors are contiguous and
// lie where `ranks` reaches them.
void reduce_scatter(ByteExchange& ranks, const std::vector<ScatterPart>& parts, at::ScalarType type,
                    ReduceOp op);

// Reduces `tensor` in place. Tensors of up to 64 KiB are gathered whole and combined by every rank; larger
// ones are reduce-scattered and gathered.
void all_reduce(ByteExchange& ranks, const at::Tensor& tensor, ReduceOp op);

}  // namespace tessera::comm::detail
