// Gated delta nets whose documents are spread over ranks.
#pragma once

#include <memory>

#include "tessera/comm/communicator.h"
#include "tessera/nn/delta_core.h"

namespace tessera::parallel {

// Returns the core by which each rank of the group reads for its tokens: an all-to-all gives it the whole
// line for some key heads and their value heads, and a second one gives the results back (HeadExchange). A
// rank may get no head. Collective, in the forward and in the backward.
std::shared_ptr<const nn::DeltaCore> context_parallel_delta(std::shared_ptr<comm::Communicator> group);

}  // namespace tessera::parallel
