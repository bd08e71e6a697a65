// Context parallelism: the tokens of every document spread over ranks.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "tessera/comm/communicator.h"
#include "tessera/core/parallel_dims.h"
#include "tessera/nn/sequence.h"

namespace tessera::parallel {

// Puts attention over the ranks of `group` into every nn::Attention below `root`, whose forwards then take
// the tokens that token_part() gives this rank, and a context that says so. All else in a model works on each
// token alone. The loss and the gradients are this rank's parts of the sums over the group. Collective.
// A cache is an Error(Config, "CONTEXT-PARALLEL"): generate with the whole line on each rank.
void context_parallel(torch::nn::Module& root, ContextParallelMethod method,
                      const std::shared_ptr<comm::Communicator>& group);

// This rank's tokens of a line that all ranks of the group have, with their labels and positions; `whole`
// itself for a group of one. Copies of the line's first tokens, without labels and seen by no other token,
// make their number a multiple of `multiple`.
nn::TokenBatch token_part(const nn::TokenBatch& whole, const comm::Communicator& group, int64_t multiple = 1);

}  // namespace tessera::parallel
