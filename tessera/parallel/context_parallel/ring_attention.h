// Attention over documents whose tokens are spread over ranks, keys and values going round.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/parallel/context_parallel/token_split.h"

namespace tessera::parallel {

// Ring attention (Liu et al., arXiv 2310.01889): every rank's keys and values pass all ranks in turn, each
// adds what its queries find in them, by the logarithms of the softmax's denominators, and sends them on
// while it computes. The backward sends the gradients of keys and values round as well. q, k, v: this rank's
// tokens as `split` says, shapes as of ops::document_attention(); so is the result. Collective, in the
// forward and in the backward: all ranks of the group call it in one order. Saves q, k, v, the result and one
// number a token and head.
at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const TokenSplit& split, const ops::AttentionFormula& formula,
                          const std::shared_ptr<comm::Communicator>& group);

}  // namespace tessera::parallel
