// Tensor parallelism over the layers of a model.
#pragma once

#include <torch/nn/module.h>

#include "tessera/nn/output_head.h"
#include "tessera/parallel/parameter_layouts.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::parallel {

struct TensorParallelOptions {
  // Spreads the tokens over the ranks between the regions of layers that are cut, in equal numbers: norms,
  // residuals and what is kept for the backward then take less memory, and sums over ranks become
  // reduce-scatters and all-gathers. The number of tokens of a batch must be a multiple of the number of
  // ranks.
  bool sequence_parallel = false;
  // Together with sequence_parallel: tokens travel while the products of other tokens run, in messages
  // between each two ranks, at the start of regions and at Linears that end them; see token_exchange.h. If
  // false, nothing is computed while tokens travel.
  bool async = false;
};

// Throws Error(Config, "TENSOR-PARALLEL"), with the nearest numbers of ranks that work, for a layer of `root`
// with fewer units than there are ranks and for what tensor_parallel_axes() refuses; Error(Config, "LAYER")
// for a name that no layer has. `root` is on the meta device and not cut yet.
void check_tensor_parallel(const torch::nn::Module& root, const TensorParallelPlan& plan, int64_t num_ranks);

// Cuts the layers that `plan` names, and their adapters, over the ranks of `axis`, and puts the sums over
// ranks into their forwards. `root` is on the meta device; its parameters get the shapes of this rank's
// parts. Every rank along the axis must then run the same forwards and backwards on the same tokens; the
// model computes the same, up to rounding. Returns the layouts for ShardOptions. Throws what
// check_tensor_parallel() throws. Collective along the axis.
ParameterLayouts tensor_parallel(torch::nn::Module& root, const TensorParallelPlan& plan,
                                 const RankAxis& axis, const TensorParallelOptions& options = {});

// Does the same for the head. That of a language model is cut: the loss is over the whole vocabulary, and
// logits are gathered; its weight must already be cut by tensor_parallel(), which returned `layouts`. That of
// a classifier is small, and all ranks compute the whole of it.
void tensor_parallel_head(nn::TaskHead& head, const ParameterLayouts& layouts, const RankAxis& axis,
                          const TensorParallelOptions& options = {});

}  // namespace tessera::parallel
