// Expert parallelism: the experts of every sparse layer spread over ranks.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>

#include "tessera/parallel/parameter_layouts.h"

namespace tessera::parallel {

// Throws Error(Config, "EXPERT-PARALLEL") where `root` has no nn::SparseMLP, or one with fewer experts than
// `num_ranks`.
void check_expert_parallel(const torch::nn::Module& root, int64_t num_ranks);

// Deals the experts of every nn::SparseMLP below `root`, on the meta device with its adapters, to the ranks
// of `axis`, as evenly as they can be, and has the rows of tokens sent to the ranks of their experts and
// back. The ranks hold different tokens and the same other parameters; each runs its own tokens' forward and
// backward. The gradient of an expert is then the sum over the ranks of `axis` already. `groups`: over which
// fully_shard() spreads what a rank has of the experts; `layouts` gets that. What the model computes is the
// same to rounding. Throws what check_expert_parallel() throws. Comes after what else cuts parameters. Not
// collective.
void expert_parallel(torch::nn::Module& root, const RankAxis& axis, const ShardGroups& groups,
                     ParameterLayouts& layouts);

}  // namespace tessera::parallel
