#include "tessera/parallel/context_parallel/ring_attention.h"

#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/trace.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::parallel {
namespace {

using Group = std::shared_ptr<comm::Communicator>;

constexpr const char* kKeys = "keys and values of ring attention";
constexpr const char* kGradients = "gradients of ring attention";

// Returns the rank whose numbers are here after `step` steps round the ring, in which each rank receives from
// the rank before it.
int64_t source_of(int64_t step, const comm::Communicator& group) {
  return (group.rank() - step % group.size() + group.size()) % group.size();
}

// A tensor on its way to the next rank, and the one that arrives from the rank before. `sent` is held until
// wait(), since the operation reads it.
struct Passing {
  at::Tensor sent, received;
  std::shared_ptr<comm::Work> work;

  at::Tensor wait() {
    work->wait();
    sent.reset();
    return std::move(received);
  }
};

// Starts to send `tensor` to the next rank and to receive into `room` from the one before. It is an
// all-to-all in which each rank has one piece to send and one to receive, and so collective: with messages
// the host would wait until both ends have come.
Passing pass_on(const at::Tensor& tensor, const at::Tensor& room, const Group& group, const char* what) {
  const int64_t rank = group->rank(), size = group->size();
  std::vector<int64_t> to_come(static_cast<size_t>(size), 0), to_go = to_come;
  to_go[static_cast<size_t>((rank + 1) % size)] = tensor.numel();
  to_come[static_cast<size_t>((rank + size - 1) % size)] = room.numel();
  return {tensor, room, group->all_to_all_v(room, tensor, to_come, to_go, true, {comm::hint(what)})};
}

// Returns memory for the keys and values of a rank, or for their gradients, together: [2, tokens, kv_heads,
// head_dim].
at::Tensor room_for(const at::Tensor& k, int64_t tokens, at::ScalarType type) {
  return at::empty({2, tokens, k.size(1), k.size(2)}, k.options().dtype(type));
}

// Calls body(step, source, keys and values of source) for each rank's keys and values as they pass. The
// exchange is started before body() and waited for after it, so it runs beside the compute; body() and the
// exchange both only read `here`.
template <class Body>
void pass_round(const at::Tensor& k, const at::Tensor& v, const TokenSplit& split, const Group& group,
                const Body& body) {
  at::Tensor here = at::stack({k, v});
  for (int64_t step = 0; step < group->size(); ++step) {
    const bool goes_on = step + 1 < group->size();
    Passing next;
    if (goes_on) {
      next =
          pass_on(here, room_for(k, split.count(source_of(step + 1, *group)), k.scalar_type()), group, kKeys);
    }
    body(step, source_of(step, *group), here);
    if (goes_on) here = next.wait();
  }
}

// Returns one half of a rank's rows, as a view.
at::Tensor half_of(const at::Tensor& rows, const TokenSplit& split, int64_t rank, int64_t half) {
  return rows.narrow(0, half == 0 ? 0 : split.count(rank, 0), split.count(rank, half));
}

// Returns the formula for one half of a rank's queries.
ops::AttentionFormula formula_of_half(ops::AttentionFormula formula, const TokenSplit& split, int64_t rank,
                                      int64_t half) {
  at::Tensor& draws = formula.dropout.draws;
  if (draws.defined()) draws = half_of(draws, split, rank, half);
  return formula;
}

// Calls body(query half, key half, spans) for those pairs of halves in which some query sees some key.
template <class Body>
void for_each_pair(const TokenSplit& split, int64_t rank, int64_t source,
                   const ops::AttentionFormula& formula, const Body& body) {
  for (int64_t query_half = 0; query_half < TokenSplit::kHalves; ++query_half) {
    for (int64_t key_half = 0; key_half < TokenSplit::kHalves; ++key_half) {
      const auto spans = split.spans(rank, query_half, source, key_half);
      if (ops::some_query_sees(spans, formula)) body(query_half, key_half, spans);
    }
  }
}

ops::AttentionResult forward_pass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const TokenSplit& split, const ops::AttentionFormula& formula,
                                  const Group& group) {
  const int64_t rank = group->rank();
  // `sum` is in the compute type of q and rounded once, at the end. It is updated in place, through views of
  // the halves.
  ops::AttentionResult sum = ops::attention_of_nothing(q);
  pass_round(k, v, split, group, [&](int64_t, int64_t source, const at::Tensor& keys) {
    for_each_pair(split, rank, source, formula, [&](int64_t query_half, int64_t key_half, const auto& spans) {
      const auto own = [&](const at::Tensor& rows) { return half_of(rows, split, rank, query_half); };
      ops::add_attention({own(sum.out), own(sum.log_sum)},
                         ops::attend_spans(own(q), half_of(keys[0], split, source, key_half),
                                           half_of(keys[1], split, source, key_half), spans,
                                           formula_of_half(formula, split, rank, query_half)));
    });
  });
  ops::add_sinks(sum, formula);
  return {sum.out.to(q.scalar_type()), sum.log_sum};
}

// [Note: gradients round the ring] The gradient of a rank's keys is a sum over all ranks whose queries see
// them. It travels one rank behind the keys themselves: at step s this rank holds the keys of source_of(s),
// computes what its own queries add to their gradient, then adds the sum that the rank before, which held the
// same keys at step s - 1, has passed on, and passes the total on. After the last step one more pass remains:
// the sum that arrives then is that of this rank's own keys, which have gone full circle.
//
// Each gradient pass is started after body()'s compute and waited for in the next step after the compute
// there, so it is hidden too. The order in which the two kinds of exchange are submitted (keys, gradients,
// keys, ...) is the same on every rank, as collectives of one group require.
ops::AttentionGradients backward_pass(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const ops::AttentionResult& result,
                                      const TokenSplit& split, const ops::AttentionFormula& formula,
                                      const Group& group) {
  const int64_t rank = group->rank();
  const at::ScalarType exact = ops::compute_type(q.scalar_type());
  const at::Tensor grad_q = at::zeros(q.sizes(), q.options().dtype(exact));
  // The gradients of the keys at hand, [2, tokens of source, kv_heads, head_dim], with what the ranks before
  // have added.
  at::Tensor grad_keys;
  Passing passing;
  pass_round(k, v, split, group, [&](int64_t step, int64_t source, const at::Tensor& keys) {
    grad_keys = room_for(k, split.count(source), exact).zero_();
    for_each_pair(split, rank, source, formula, [&](int64_t query_half, int64_t key_half, const auto& spans) {
      const auto own = [&](const at::Tensor& rows) { return half_of(rows, split, rank, query_half); };
      const auto theirs = [&](const at::Tensor& rows) { return half_of(rows, split, source, key_half); };
      const ops::AttentionGradients part = ops::attend_spans_backward(
          own(grad), own(q), theirs(keys[0]), theirs(keys[1]), {own(result.out), own(result.log_sum)}, spans,
          formula_of_half(formula, split, rank, query_half));
      own(grad_q).add_(part.q);
      theirs(grad_keys[0]).add_(part.k);
      theirs(grad_keys[1]).add_(part.v);
    });
    if (step > 0) grad_keys.add_(passing.wait());
    if (group->size() == 1) return;
    // The sum that arrives is for the keys that the rank before holds now: those which come here at step + 1.
    const at::Tensor room = room_for(k, split.count(source_of(step + 1, *group)), exact);
    passing = pass_on(grad_keys, room, group, kGradients);
  });
  if (group->size() > 1) grad_keys = passing.wait();
  const at::ScalarType type = q.scalar_type();
  return {grad_q.to(type), grad_keys[0].to(type), grad_keys[1].to(type)};
}

struct RingAttention : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                            const TokenSplit& split, const ops::AttentionFormula& formula,
                            const Group& group) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const ops::AttentionResult result = forward_pass(q, k, v, split, formula, group);
    ops::save_activations(*ctx, {q, k, v, result.out, result.log_sum});
    if (sinks) ctx->saved_data["sinks"] = sinks->detach();
    ctx->saved_data["rest"] = c10::IValue::make_capsule(c10::make_intrusive<Rest>(split, formula, group));
    return result.out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    ops::refuse_double_backward("ring_attention");
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const trace::Scope trace_scope("ring_attention_backward");
    const auto saved = ops::take_activations(*ctx);
    const auto rest = ctx->saved_data["rest"].toCapsule();
    const auto& [split, formula, group] = static_cast<const Rest&>(*rest).values;
    const ops::AttentionGradients made =
        backward_pass(grads[0], saved[0], saved[1], saved[2], {saved[3], saved[4]}, split, formula, group);
    at::Tensor grad_sinks;
    if (ctx->saved_data.count("sinks") > 0)
      grad_sinks = ops::sinks_gradient(grads[0], {saved[3], saved[4]}, ctx->saved_data["sinks"].toTensor());
    return {made.q, made.k, made.v, grad_sinks, {}, {}, {}};
  }

  struct Rest : torch::CustomClassHolder {
    Rest(const TokenSplit& split, const ops::AttentionFormula& formula, const Group& group)
        : values(split, formula, group) {}
    const std::tuple<TokenSplit, ops::AttentionFormula, Group> values;
  };
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const TokenSplit& split, const ops::AttentionFormula& formula, const Group& group) {
  const trace::Scope trace_scope("ring_attention");
  const auto sinks = formula.sinks.defined() ? std::optional(formula.sinks) : std::nullopt;
  return RingAttention::apply(q, k, v, sinks, split, formula, group);
}

}  // namespace tessera::parallel
