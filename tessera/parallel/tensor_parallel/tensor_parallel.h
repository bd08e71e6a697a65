// Tensor parallelism over the layers of a model.
#pragma once

#include <torch/nn/module.h>

#include "tessera/nn/output_head.h"
#include "tessera/parallel/parameter_layouts.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::parallel {

struct TensorParallelOptions {
  // Between the regions of layers that are cut each rank holds its part of the tokens, as many as the others:
  // norms, residuals and what is kept for the backward are spread over the ranks, and sums over ranks become
  // reduce-scatters and all-gathers. The number of tokens of a batch must then be a multiple of the ranks'.
  bool sequence_parallel = false;
  // With it: tokens travel while products of others run, between each two ranks by messages of their own,
  // where regions begin and Linears end them; see token_exchange.h. Else nothing is computed meanwhile.
  bool async = false;
};

// Throws Error(Config, "TENSOR-PARALLEL"), with the nearest numbers of ranks that work, for a layer of `root`
// (on the meta device, not cut yet) with fewer units than there are ranks and for what tensor_parallel_axes()
// refuses, and Error(Config, "LAYER") for a name that there is not.
void check_tensor_parallel(const torch::nn::Module& root, const TensorParallelPlan& plan, int64_t num_ranks);

// Cuts the layers that `plan` names over the ranks of `axis`, adapters with them, and puts the sums over
// ranks into their forwards. `root` is on the meta device; its parameters get the shapes of this rank's
// parts. Every rank along the axis then runs the same forwards and backwards on the same tokens; what the
// model computes is the same to rounding. Returns the layouts for ShardOptions. Throws what
// check_tensor_parallel() throws. Collective along the axis.
ParameterLayouts tensor_parallel(torch::nn::Module& root, const TensorParallelPlan& plan,
                                 const RankAxis& axis, const TensorParallelOptions& options = {});

// The same for the output projection and the loss, with the layouts that tensor_parallel() gave, whose weight
// must be cut already: the loss is over the whole vocabulary, logits are gathered.
void tensor_parallel_head(nn::OutputHead& head, const ParameterLayouts& layouts, const RankAxis& axis,
                          const TensorParallelOptions& options = {});

}  // namespace tessera::parallel
