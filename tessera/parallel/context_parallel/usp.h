// Attention over documents whose tokens are spread over a grid of ranks.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/parallel/context_parallel/token_split.h"

namespace tessera::parallel {

// USP (Fang and Zhao, arXiv 2405.07719): the ranks of `heads`, which are neighbours in `split`, exchange
// heads for tokens (ulysses_attention()). Each then goes round `ring`, the ranks of the same place among
// their neighbours, with its part of the heads (ring_attention()). `split` is over heads->size() x
// ring->size() ranks, and this rank belongs to the neighbours number ring->rank(). q, k, v: this rank's
// tokens, [tokens, heads, head_dim] and [tokens, kv_heads, head_dim]; the result is like q. Collective over
// both groups, in the forward and in the backward.
at::Tensor usp_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const TokenSplit& split, const ops::AttentionFormula& formula,
                         const std::shared_ptr<comm::Communicator>& heads,
                         const std::shared_ptr<comm::Communicator>& ring);

}  // namespace tessera::parallel
