// Attention over documents whose tokens are spread over ranks, heads changing places with tokens.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/nn/attention_core.h"
#include "tessera/parallel/context_parallel/token_split.h"

namespace tessera::parallel {

// DeepSpeed-Ulysses (Jacobs et al., arXiv 2309.14509): an all-to-all gives each rank all tokens of a part of
// the heads, `core` attends, and a second one gives the results back. Key/value heads are dealt as evenly as
// they can be, each with its query heads; a rank may get none. q, k, v: this rank's tokens as `split` says;
// `context` is that of the whole line. Collective, in the forward and in the backward.
at::Tensor ulysses_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const TokenSplit& split, const nn::AttentionCore& core,
                             const nn::SequenceContext& context, int64_t layer,
                             const ops::AttentionFormula& formula,
                             const std::shared_ptr<comm::Communicator>& group);

}  // namespace tessera::parallel
