// Expert parallelism: the experts of every sparse layer are spread over ranks.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>

#include "tessera/parallel/parameter_layouts.h"

namespace tessera::parallel {

// Throws Error(Config, "EXPERT-PARALLEL") if `root` has an nn::SparseMLP with fewer experts than `num_ranks`,
// or has none although `num_ranks` is above 1.
void check_expert_parallel(const torch::nn::Module& root, int64_t num_ranks);

// Deals the experts of every nn::SparseMLP below `root` to the ranks of `axis`, as evenly as possible, and
// has the rows of tokens sent to the ranks of their experts and back. `root` is on the meta device and has
// its adapters. The ranks of the axis hold different tokens and the same other parameters; each runs the
// forward and backward of its own tokens. The gradient of an expert is thus already the sum over the ranks of
// `axis`. `groups` are those over which fully_shard() spreads the experts of one rank; they are entered into
// `layouts`. The model computes the same, up to rounding. Call it after everything else that cuts parameters.
// Throws what check_expert_parallel() throws. Not collective.
void expert_parallel(torch::nn::Module& root, const RankAxis& axis, const ShardGroups& groups,
                     ParameterLayouts& layouts);

}  // namespace tessera::parallel
