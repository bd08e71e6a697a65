// What tensor parallel ranks exchange around the layers that they have cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/nn/layer.h"
#include "tessera/ops/pass_through.h"
#include "tessera/parallel/parameter_layouts.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

namespace tessera::parallel::detail {

using Group = std::shared_ptr<comm::Communicator>;
using Exchange = std::shared_ptr<const nn::LayerParallel>;

// The sum over ranks, in place. `what` is for messages.
ops::ChangeInPlace sum_over(const Group& group, const std::string& what,
                            comm::ReduceOp op = comm::ReduceOp::Sum);

// Where activations come into a region of layers that are cut: whole on every rank, or to be gathered from
// the tokens of each, for products to take as they come where the options say so. Their gradients are summed.
Exchange region_input(const Group& group, const std::string& name, const TensorParallelOptions& options);
// Where parts of a sum leave it: summed on every rank, or each rank its tokens of the sum.
Exchange region_output(const Group& group, const std::string& name, const TensorParallelOptions& options);
// The same of a Linear, whose outputs may go while it makes them.
Exchange product_output(const Group& group, const std::string& name, const TensorParallelOptions& options);
// Both, of a layer that is such a region.
Exchange summed_region(const Group& group, const std::string& name, const TensorParallelOptions& options);
// Of a layer that gives all tokens on every rank: the rank's own.
Exchange own_tokens(const Group& group);
// The output projection: hidden states come into a region, and whole logits leave it. `weight`: its layout,
// of which `axes` are those of the group's ranks.
Exchange head_exchange(const Group& group, const std::vector<RankAxis>& axes, const Layout& weight,
                       const TensorParallelOptions& options);

}  // namespace tessera::parallel::detail
