// Context parallelism: the tokens of every document are spread over ranks.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "tessera/comm/communicator.h"
#include "tessera/core/parallel_dims.h"
#include "tessera/nn/sequence.h"

namespace tessera::parallel {

// Makes every nn::Attention, nn::GatedDeltaNet and nn::GatedConvolution below `root` work over the tokens of
// all ranks of `group`, the latter two by an exchange of heads or channels for tokens whatever the method.
// Their forwards then take the tokens that token_part() gives this rank, and a context whose `part` says so.
// All else in a model works on each token alone. The loss and the gradients are this rank's parts of the sums
// over the group. Collective. A cache of keys and values is then an Error(Config, "CONTEXT-PARALLEL"): to
// generate, give each rank the whole line.
void context_parallel(torch::nn::Module& root, ContextParallelMethod method,
                      const std::shared_ptr<comm::Communicator>& group);

// Returns this rank's tokens of `whole`, which all ranks of the group have, with their labels and positions;
// `whole` itself for a group of one. Copies of the line's first tokens, without labels and seen by no other
// token, are appended until the number of tokens is a multiple of `multiple`.
nn::TokenBatch token_part(const nn::TokenBatch& whole, const comm::Communicator& group, int64_t multiple = 1);

}  // namespace tessera::parallel
