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
                      {{{}, "heads of Ulysses attention"}});
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

// The tokens of the line in the order in which the ranks hold them, one rank after the other.
at::Tensor order_by_rank(const TokenSplit& split, const at::TensorOptions& options) {
  const auto int_options = options.dtype(at::kLong);
  std::vector<at::Tensor> runs = {at::empty({0}, int_options)};
  for (int64_t rank = 0; rank < split.num_ranks(); ++rank) {
    for (const nn::TokenRun& run : split.runs(rank)) {
      runs.push_back(at::arange(run.first, run.first + run.count, int_options));
    }
  }
  return at::cat(runs);
}

}  // namespace

at::Tensor ulysses_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const TokenSplit& split, const nn::AttentionCore& core,
                             const nn::SequenceContext& context, int64_t layer,
                             const ops::AttentionFormula& formula, const Group& group) {
  const trace::Scope trace_scope("ulysses_attention");
  const int64_t num_ranks = group->size(), rank = group->rank(), tokens = q.size(0), head_dim = q.size(2),
                shared_by = q.size(1) / k.size(1);
  const auto kv_heads = [&](int64_t of) { return piece_of(k.size(1), num_ranks, of, 1); };
  const int64_t own = kv_heads(rank).size;

  std::vector<at::Tensor> parts;
  Counts tokens_to_come, heads_to_go, results_to_go, results_to_come;
  for (int64_t other = 0; other < num_ranks; ++other) {
    const auto [first, count] = kv_heads(other);
    parts.push_back(at::cat({q.narrow(1, first * shared_by, count * shared_by), k.narrow(1, first, count),
                             v.narrow(1, first, count)},
                            1)
                        .flatten());
    heads_to_go.push_back(tokens * count * (shared_by + 2) * head_dim);
    results_to_come.push_back(tokens * count * shared_by * head_dim);
    tokens_to_come.push_back(split.count(other) * own * (shared_by + 2) * head_dim);
    results_to_go.push_back(split.count(other) * own * shared_by * head_dim);
  }
  const at::Tensor order = order_by_rank(split, q.options()), place = at::argsort(order);
  const at::Tensor line = Exchange::apply(at::cat(parts), tokens_to_come, heads_to_go, group)
                              .view({order.size(0), own * (shared_by + 2), head_dim})
                              .index_select(0, place);
  const int64_t q_heads = own * shared_by;
  const at::Tensor result = core.attend(line.narrow(1, 0, q_heads), line.narrow(1, q_heads, own),
                                        line.narrow(1, q_heads + own, own), context, layer, formula);
  const at::Tensor back =
      Exchange::apply(result.index_select(0, order).flatten(), results_to_come, results_to_go, group);
  std::vector<at::Tensor> heads;
  int64_t at = 0;
  for (int64_t other = 0; other < num_ranks; ++other) {
    const int64_t size = results_to_come[static_cast<size_t>(other)];
    heads.push_back(back.narrow(0, at, size).view({tokens, kv_heads(other).size * shared_by, head_dim}));
    at += size;
  }
  return at::cat(heads, 1);
}

}  // namespace tessera::parallel
