#include "tessera/parallel/context_parallel/usp.h"

#include <ATen/ATen.h>

#include "tessera/nn/attention_core.h"
#include "tessera/parallel/context_parallel/ring_attention.h"
#include "tessera/parallel/context_parallel/ulysses.h"

namespace tessera::parallel {

at::Tensor usp_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const TokenSplit& split, const ops::AttentionFormula& formula,
                         const std::shared_ptr<comm::Communicator>& heads,
                         const std::shared_ptr<comm::Communicator>& ring) {
  // The parts of neighbours, put together, are one part of the split over heads->size() times fewer ranks,
  // because cuts lie at length x i / parts in both.
  const TokenSplit coarse = split.coarser(heads->size());
  SharedTokens tokens;
  for (int64_t i = 0; i < heads->size(); ++i)
    tokens.of_rank.push_back(split.runs(ring->rank() * heads->size() + i));
  tokens.line = coarse.runs(ring->rank());
  return ulysses_attention(
      q, k, v, tokens, formula,
      [&](const at::Tensor& qs, const at::Tensor& ks, const at::Tensor& vs,
          const ops::AttentionFormula& of_heads) {
        // More ranks than key/value heads leave some ranks without heads; they take no part in the ring,
        // which consists of such ranks alone.
        if (qs.size(1) == 0) return nn::attention_of_no_heads(qs, ks, vs, of_heads);
        return ring_attention(qs, ks, vs, coarse, of_heads, ring);
      },
      heads);
}

}  // namespace tessera::parallel
