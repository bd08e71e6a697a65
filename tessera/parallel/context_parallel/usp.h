// Attention over documents whose tokens are spread over a grid of ranks.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/parallel/context_parallel/token_split.h"

namespace tessera::parallel {

// USP (Fang and Zhao, arXiv 2405.07719): the ranks of `heads`, neighbours in `split`, exchange heads for
// tokens (ulysses_attention()), and each then goes round `ring`, the ranks of its place among their
// neighbours, with its part of the heads (ring_attention()). `split` is over heads->size() x ring->size()
// ranks, of which the neighbours number ring->rank() are this rank's. q, k, v: this rank's tokens. Collective
// over both, in the forward and in the backward.
at::Tensor usp_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const TokenSplit& split, const ops::AttentionFormula& formula,
                         const std::shared_ptr<comm::Communicator>& heads,
                         const std::shared_ptr<comm::Communicator>& ring);

}  // namespace tessera::parallel
