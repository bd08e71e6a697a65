// Short convolutions over documents that are spread over context parallel ranks.
#pragma once

#include <memory>

#include "tessera/comm/communicator.h"
#include "tessera/nn/convolution_core.h"

namespace tessera::parallel {

// Returns the core for the tokens that token_part() gives to the ranks of `group`: they exchange channels for
// tokens, so that each convolves some channels of all tokens. Its forward and backward are collective.
std::shared_ptr<const nn::ConvolutionCore> context_parallel_convolution(
    std::shared_ptr<comm::Communicator> group);

}  // namespace tessera::parallel
