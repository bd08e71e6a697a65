// Attention over documents whose tokens are spread over ranks; an all-to-all exchanges heads for tokens.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/parallel/context_parallel/head_exchange.h"

namespace tessera::parallel {

// DeepSpeed-Ulysses (Jacobs et al., arXiv 2309.14509): an all-to-all gives each rank all shared tokens for a
// part of the heads, `attend` computes, and a second all-to-all gives the results back. Key/value heads are
// dealt as evenly as possible, each with its query heads; a rank may get none. q, k, v: this rank's tokens,
// [tokens, heads, head_dim] and [tokens, kv_heads, head_dim]; the result is like q. Collective, in the
// forward and in the backward.
// `attend` gets the formula with the sinks of its heads.
using AttentionOfHeads = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor& v, const ops::AttentionFormula& formula)>;
at::Tensor ulysses_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const SharedTokens& tokens, const ops::AttentionFormula& formula,
                             const AttentionOfHeads& attend,
                             const std::shared_ptr<comm::Communicator>& group);

}  // namespace tessera::parallel
