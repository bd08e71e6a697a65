#include "tessera/parallel/context_parallel/ulysses.h"

#include <ATen/ATen.h>

#include "tessera/core/trace.h"

namespace tessera::parallel {

at::Tensor ulysses_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const SharedTokens& tokens, const ops::AttentionFormula& formula,
                             const AttentionOfHeads& attend,
                             const std::shared_ptr<comm::Communicator>& group) {
  const trace::Scope trace_scope("ulysses_attention");
  const int64_t head_dim = q.size(2), shared_by = q.size(1) / k.size(1);
  const HeadExchange exchange(tokens, k.size(1), group, q.device());
  // q, k and v of a rank's heads lie side by side.
  const auto part = [&](int64_t first, int64_t count) {
    return at::cat({q.narrow(1, first * shared_by, count * shared_by), k.narrow(1, first, count),
                    v.narrow(1, first, count)},
                   1);
  };
  const int64_t own = exchange.own_heads(), q_heads = own * shared_by;
  const at::Tensor line = exchange.to_heads(part, (shared_by + 2) * head_dim)
                              .view({exchange.num_tokens(), own * (shared_by + 2), head_dim});
  ops::AttentionFormula of_heads = formula;
  if (formula.sinks.defined())
    of_heads.sinks = formula.sinks.narrow(0, exchange.first_head() * shared_by, q_heads);
  if (const at::Tensor& draws = formula.dropout.draws; draws.defined()) {
    const auto of_queries = [&](int64_t first, int64_t count) {
      return draws.narrow(1, first * shared_by, count * shared_by);
    };
    of_heads.dropout.draws = exchange.to_heads(of_queries, shared_by);
  }
  const at::Tensor result = attend(line.narrow(1, 0, q_heads), line.narrow(1, q_heads, own),
                                   line.narrow(1, q_heads + own, own), of_heads);
  return exchange.to_tokens(result.flatten(1), shared_by * head_dim).view(q.sizes());
}

}  // namespace tessera::parallel
