#include "tessera/parallel/context_parallel/ring_attention.h"

#include <string>
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

constexpr int kKeysTag = 0, kGradientsTag = 1;

// What goes round: each rank sends to the next one and hears from the one before.
class Ring {
 public:
  Ring(Group group, int tag, std::string what)
      : group_(std::move(group)), tag_(tag), what_(std::move(what)) {}

  int64_t rank() const { return group_->rank(); }
  int64_t size() const { return group_->size(); }
  // Whose numbers are here after `step` steps.
  int64_t source(int64_t step) const { return (rank() - step % size() + size()) % size(); }

  void send(const at::Tensor& tensor) {
    if (sent_ != nullptr) sent_->wait();
    sent_ = issue(comm::isend(tensor, (rank() + 1) % size(), tag_));
    sending_ = tensor;
  }
  void start_recv(at::Tensor to) {
    receiving_ = std::move(to);
    received_ = issue(comm::irecv(receiving_, (rank() + size() - 1) % size(), tag_));
  }
  at::Tensor wait_recv() {
    received_->wait();
    return std::exchange(receiving_, at::Tensor());
  }
  void finish() {
    if (sent_ != nullptr) sent_->wait();
    sent_ = nullptr;
    sending_.reset();
  }

 private:
  std::shared_ptr<comm::Work> issue(comm::P2pOp op) const {
    return group_->batch_p2p({std::move(op)}, true, {{{}, what_}});
  }

  Group group_;
  int tag_;
  std::string what_;
  at::Tensor sending_, receiving_;
  std::shared_ptr<comm::Work> sent_, received_;
};

// Keys and values of a rank in one message: [2, tokens, kv_heads, head_dim].
at::Tensor room_for(const at::Tensor& k, int64_t tokens, at::ScalarType type) {
  return at::empty({2, tokens, k.size(1), k.size(2)}, k.options().dtype(type));
}

// Calls body(step, source, keys and values of source) as they pass.
template <class Body>
void pass_round(const at::Tensor& k, const at::Tensor& v, const TokenSplit& split, const Group& group,
                const Body& body) {
  Ring ring(group, kKeysTag, "keys and values of ring attention");
  at::Tensor here = at::stack({k, v});
  for (int64_t step = 0; step < ring.size(); ++step) {
    const bool goes_on = step + 1 < ring.size();
    if (goes_on) {
      ring.start_recv(room_for(k, split.count(ring.source(step + 1)), k.scalar_type()));
      ring.send(here);
    }
    body(step, ring.source(step), here);
    if (goes_on) here = ring.wait_recv();
  }
  ring.finish();
}

// One half of a rank's rows: a view.
at::Tensor half_of(const at::Tensor& rows, const TokenSplit& split, int64_t rank, int64_t half) {
  return rows.narrow(0, half == 0 ? 0 : split.count(rank, 0), split.count(rank, half));
}

// Calls body(query half, key half, spans) for the pairs of halves of which some queries see some keys.
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
  ops::AttentionResult sum = ops::attention_of_nothing(q);
  pass_round(k, v, split, group, [&](int64_t, int64_t source, const at::Tensor& keys) {
    for_each_pair(split, rank, source, formula, [&](int64_t query_half, int64_t key_half, const auto& spans) {
      const auto own = [&](const at::Tensor& rows) { return half_of(rows, split, rank, query_half); };
      ops::add_attention({own(sum.out), own(sum.log_sum)},
                         ops::attend_spans(own(q), half_of(keys[0], split, source, key_half),
                                           half_of(keys[1], split, source, key_half), spans, formula));
    });
  });
  return {sum.out.to(q.scalar_type()), sum.log_sum};
}

ops::AttentionGradients backward_pass(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const ops::AttentionResult& result,
                                      const TokenSplit& split, const ops::AttentionFormula& formula,
                                      const Group& group) {
  const int64_t rank = group->rank();
  const at::ScalarType exact = ops::compute_type(q.scalar_type());
  const at::Tensor grad_q = at::zeros(q.sizes(), q.options().dtype(exact));
  // The gradients of the keys that are here, with what the ranks before have added.
  Ring ring(group, kGradientsTag, "gradients of ring attention");
  const bool is_alone = ring.size() == 1;
  at::Tensor grad_keys;
  pass_round(k, v, split, group, [&](int64_t step, int64_t source, const at::Tensor& keys) {
    if (step > 0) ring.start_recv(room_for(k, split.count(source), exact));
    at::Tensor own_keys = room_for(k, split.count(source), exact).zero_();
    for_each_pair(split, rank, source, formula, [&](int64_t query_half, int64_t key_half, const auto& spans) {
      const auto own = [&](const at::Tensor& rows) { return half_of(rows, split, rank, query_half); };
      const auto theirs = [&](const at::Tensor& rows) { return half_of(rows, split, source, key_half); };
      const ops::AttentionGradients part =
          ops::attend_spans_backward(own(grad), own(q), theirs(keys[0]), theirs(keys[1]),
                                     {own(result.out), own(result.log_sum)}, spans, formula);
      own(grad_q).add_(part.q);
      theirs(own_keys[0]).add_(part.k);
      theirs(own_keys[1]).add_(part.v);
    });
    if (step > 0) own_keys.add_(ring.wait_recv());
    if (!is_alone) ring.send(own_keys);
    grad_keys = std::move(own_keys);
  });
  if (!is_alone) {
    ring.start_recv(room_for(k, split.count(rank), exact));
    grad_keys = ring.wait_recv();
    ring.finish();
  }
  const at::ScalarType type = q.scalar_type();
  return {grad_q.to(type), grad_keys[0].to(type), grad_keys[1].to(type)};
}

struct RingAttention : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const TokenSplit& split,
                            const ops::AttentionFormula& formula, const Group& group) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const ops::AttentionResult result = forward_pass(q, k, v, split, formula, group);
    ops::save_activations(*ctx, {q, k, v, result.out, result.log_sum});
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
    return {made.q, made.k, made.v, {}, {}, {}};
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
  return RingAttention::apply(q, k, v, split, formula, group);
}

}  // namespace tessera::parallel
