// Attention over documents whose tokens are spread over ranks, heads changing places with tokens.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/nn/sequence.h"
#include "tessera/parallel/context_parallel/token_split.h"

namespace tessera::parallel {

// The tokens that ranks share for attention.
struct SharedTokens {
  std::vector<std::vector<nn::TokenRun>> of_rank;  // of the line, in the order in which each rank holds them
  std::vector<nn::TokenRun> line;  // of all ranks together, in the order in which attention wants them
};

// All tokens of a micro-batch.
SharedTokens whole_line(const TokenSplit& split);

// DeepSpeed-Ulysses (Jacobs et al., arXiv 2309.14509): an all-to-all gives each rank all shared tokens for a
// part of the heads, `attend` computes, and a second one gives the results back. Key/value heads are dealt as
// evenly as they can be, each with its query heads; a rank may get none. q, k, v: this rank's tokens.
// Collective, in the forward and in the backward.
using AttentionOfHeads =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;
at::Tensor ulysses_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const SharedTokens& tokens, const AttentionOfHeads& attend,
                             const std::shared_ptr<comm::Communicator>& group);

}  // namespace tessera::parallel
