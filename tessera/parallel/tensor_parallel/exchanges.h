// The exchanges of tensor parallel ranks around the layers that they have cut.
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

// Returns a function that sums a tensor over the ranks (or reduces it by `op`), in place. `what` is for
// messages.
ops::ChangeInPlace sum_over(const Group& group, const std::string& what,
                            comm::ReduceOp op = comm::ReduceOp::Sum);

// The exchange at the start of a region of layers that are cut. Activations are whole on every rank or, with
// sequence parallelism, are gathered from the tokens of each rank; with `async` products take them as they
// arrive. Gradients of the activations are summed over the ranks.
Exchange region_input(const Group& group, const std::string& name, const TensorParallelOptions& options);
// The exchange at the end of a region, where each rank has a part of a sum: every rank gets the sum or, with
// sequence parallelism, its own tokens of the sum.
Exchange region_output(const Group& group, const std::string& name, const TensorParallelOptions& options);
// Like region_output(), for a Linear; with `async` the rows of its output are sent while the product makes
// the next ones.
Exchange product_output(const Group& group, const std::string& name, const TensorParallelOptions& options);
// Both exchanges, for a layer that is a region by itself.
Exchange summed_region(const Group& group, const std::string& name, const TensorParallelOptions& options);
// The exchange behind a layer that gives all tokens on every rank: keeps the rank's own tokens.
Exchange own_tokens(const Group& group);
// The exchange before a head that every rank computes whole, with sequence parallelism: gathers the tokens of
// all ranks; of the gradients, which are the same on all ranks, each keeps those of its own tokens.
Exchange whole_head(const Group& group);
// The exchanges of the output projection: hidden states come into a region, and whole logits leave it.
// `weight` is the layout of its weight, `axes` the axes of that layout, which the ranks of `group` form.
Exchange head_exchange(const Group& group, const std::vector<RankAxis>& axes, const Layout& weight,
                       const TensorParallelOptions& options);

}  // namespace tessera::parallel::detail
