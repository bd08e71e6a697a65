// Attention over documents whose tokens are spread over ranks; keys and values go round a ring.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/parallel/context_parallel/token_split.h"

namespace tessera::parallel {

// Ring attention (Liu et al., arXiv 2310.01889): every rank's keys and values pass all ranks in turn. Each
// rank attends from its queries to the keys at hand, merges the result with those so far by the logarithms of
// the softmax's denominators, and sends the keys and values on meanwhile. In the backward the gradients of
// keys and values go round as well.
//
// q, k, v: this rank's tokens as `split` orders them, with the shapes of ops::document_attention(): q
// [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim]. The result is like q. Saves q, k, v, the
// result and one number for each token and head. Collective, in the forward and in the backward: all ranks of
// the group call it in the same order.
at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const TokenSplit& split, const ops::AttentionFormula& formula,
                          const std::shared_ptr<comm::Communicator>& group);

}  // namespace tessera::parallel
