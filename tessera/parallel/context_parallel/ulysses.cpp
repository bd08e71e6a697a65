#include "tessera/parallel/context_parallel/ulysses.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/trace.h"
#include "tessera/parallel/layout.h"

namespace tessera::parallel {
namespace {

using Counts = std::vector<int64_t>;
using Group = std::shared_ptr<comm::Communicator>;

at::Tensor exchange(const at::Tensor& flat, const Counts& to_come, const Counts& to_go, const Group& group) {
  int64_t total = 0;
  for (const int64_t count : to_come) total += count;
  const at::Tensor received = at::empty({total}, flat.options());
  group->all_to_all_v(received, flat.contiguous(), to_come, to_go, false,
                      {comm::hint("heads of Ulysses attention")});
  return received;
}

struct Exchange : torch::autograd::Function<Exchange> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& flat,
                            const Counts& to_come, const Counts& to_go, const Group& group) {
    ctx->saved_data["to_come"] = to_come;
    ctx->saved_data["to_go"] = to_go;
    ctx->saved_data["back"] = c10::IValue::make_capsule(c10::make_intrusive<Back>(group));
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return exchange(flat, to_come, to_go, group);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto back = c10::static_intrusive_pointer_cast<Back>(ctx->saved_data["back"].toCapsule());
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return {exchange(grads[0], ctx->saved_data["to_go"].toIntVector(),
                     ctx->saved_data["to_come"].toIntVector(), back->group),
            {},
            {},
            {}};
  }

  struct Back : torch::CustomClassHolder {
    explicit Back(Group of) : group(std::move(of)) {}
    Group group;
  };
};

int64_t count_of(const std::vector<nn::TokenRun>& runs) {
  int64_t count = 0;
  for (const nn::TokenRun& run : runs) count += run.count;
  return count;
}

// Returns the places of the runs' tokens in the line, [tokens] int64.
at::Tensor places_of(const std::vector<nn::TokenRun>& runs, const at::TensorOptions& options) {
  const auto int_options = options.dtype(at::kLong);
  std::vector<at::Tensor> places = {at::empty({0}, int_options)};
  for (const nn::TokenRun& run : runs) {
    places.push_back(at::arange(run.first, run.first + run.count, int_options));
  }
  return at::cat(places);
}

}  // namespace

SharedTokens whole_line(const TokenSplit& split) {
  SharedTokens tokens;
  for (int64_t rank = 0; rank < split.num_ranks(); ++rank) tokens.of_rank.push_back(split.runs(rank));
  int64_t count = 0;
  for (const auto& runs : tokens.of_rank) count += count_of(runs);
  tokens.line = {{0, count}};
  return tokens;
}

at::Tensor ulysses_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const SharedTokens& tokens, const ops::AttentionFormula& formula,
                             const AttentionOfHeads& attend, const Group& group) {
  const trace::Scope trace_scope("ulysses_attention");
  const int64_t num_ranks = group->size(), rank = group->rank(), own_tokens = q.size(0), head_dim = q.size(2),
                shared_by = q.size(1) / k.size(1);
  const auto kv_heads = [&](int64_t of) { return piece_of(k.size(1), num_ranks, of, 1); };
  const auto [first_head, own] = kv_heads(rank);

  // Each rank gets this rank's tokens for its heads, q, k and v side by side: [own tokens, its heads,
  // head_dim].
  std::vector<at::Tensor> parts;
  std::vector<nn::TokenRun> held;  // the shared tokens as they arrive: one rank's after the other's
  Counts tokens_to_come, heads_to_go, results_to_go, results_to_come;
  for (int64_t other = 0; other < num_ranks; ++other) {
    const auto [first, count] = kv_heads(other);
    const std::vector<nn::TokenRun>& theirs = tokens.of_rank[static_cast<size_t>(other)];
    parts.push_back(at::cat({q.narrow(1, first * shared_by, count * shared_by), k.narrow(1, first, count),
                             v.narrow(1, first, count)},
                            1)
                        .flatten());
    heads_to_go.push_back(own_tokens * count * (shared_by + 2) * head_dim);
    results_to_come.push_back(own_tokens * count * shared_by * head_dim);
    tokens_to_come.push_back(count_of(theirs) * own * (shared_by + 2) * head_dim);
    results_to_go.push_back(count_of(theirs) * own * shared_by * head_dim);
    held.insert(held.end(), theirs.begin(), theirs.end());
  }
  // from_held[i] is the place, among the tokens as they arrive, of token i in the order of tokens.line;
  // from_line is the inverse.
  const at::Tensor line_places = places_of(tokens.line, q.options()),
                   by_place = at::argsort(places_of(held, q.options()));
  const at::Tensor from_held = by_place.index_select(0, at::argsort(at::argsort(line_places))),
                   from_line = at::argsort(from_held);
  const at::Tensor line = Exchange::apply(at::cat(parts), tokens_to_come, heads_to_go, group)
                              .view({from_held.size(0), own * (shared_by + 2), head_dim})
                              .index_select(0, from_held);
  const int64_t q_heads = own * shared_by;
  ops::AttentionFormula of_heads = formula;
  if (formula.sinks.defined()) of_heads.sinks = formula.sinks.narrow(0, first_head * shared_by, q_heads);
  const at::Tensor result = attend(line.narrow(1, 0, q_heads), line.narrow(1, q_heads, own),
                                   line.narrow(1, q_heads + own, own), of_heads);
  const at::Tensor back =
      Exchange::apply(result.index_select(0, from_line).flatten(), results_to_come, results_to_go, group);
  std::vector<at::Tensor> heads;
  int64_t at = 0;
  for (int64_t other = 0; other < num_ranks; ++other) {
    const int64_t size = results_to_come[static_cast<size_t>(other)];
    heads.push_back(back.narrow(0, at, size).view({own_tokens, kv_heads(other).size * shared_by, head_dim}));
    at += size;
  }
  return at::cat(heads, 1);
}

}  // namespace tessera::parallel
