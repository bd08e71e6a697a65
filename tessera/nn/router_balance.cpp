#include "tessera/nn/router_balance.h"

#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/ignore_label.h"
#include "tessera/ops/support.h"

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kBalance = "balance";

template <class T>
void keep(AutogradContext& ctx, T* balance) {
  ctx.saved_data[kBalance] = c10::IValue::make_capsule(c10::intrusive_ptr<T>::reclaim_copy(balance));
}

c10::intrusive_ptr<RouterBalance> kept(AutogradContext& ctx) {
  return c10::static_intrusive_pointer_cast<RouterBalance>(ctx.saved_data[kBalance].toCapsule());
}

// Casts logits to the type in which the formulas are computed.
at::Tensor wide(const at::Tensor& logits) { return logits.to(ops::compute_type(logits.scalar_type())); }

at::Tensor without_added(const at::Tensor& values, const at::Tensor& is_added) {
  return is_added.defined() ? values.masked_fill(is_added.unsqueeze(1), 0.0) : values;
}

}  // namespace

struct RouterBalance::LogitsFunction : torch::autograd::Function<LogitsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const std::optional<at::Tensor>& is_added, RouterBalance* balance, double share) {
    keep(*ctx, balance);
    ctx->save_for_backward({logits});
    if (is_added) ctx->saved_data["is_added"] = *is_added;
    ctx->saved_data["share"] = share;
    return logits.view_as(logits);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto balance = kept(*ctx);
    const at::Tensor logits = wide(ctx->get_saved_variables()[0]);
    // The derivative of (log sum_e exp(logit_e))^2 by a logit is 2 logsumexp softmax.
    const at::Tensor scale = balance->label_tokens() * balance->loss_gradient_ *
                             (2.0 * balance->weights_.z * ctx->saved_data["share"].toDouble()) /
                             balance->rows().clamp_min(1.0);
    const at::Tensor of_token = logits.logsumexp(1, /*keepdim=*/true) * scale.to(logits.scalar_type());
    const auto added = ctx->saved_data.find("is_added");
    const at::Tensor is_added = added != ctx->saved_data.end() ? added->second.toTensor() : at::Tensor();
    const at::Tensor gradient = without_added(at::softmax(logits, 1) * of_token, is_added);
    return {grads[0] + gradient.to(grads[0].scalar_type()), {}, {}, {}};
  }
};

struct RouterBalance::LayerFunction : torch::autograd::Function<LayerFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& probabilities,
                            const std::optional<at::Tensor>& is_added, RouterBalance* balance, double share) {
    keep(*ctx, balance);
    if (is_added) ctx->saved_data["is_added"] = *is_added;
    ctx->saved_data["share"] = share;
    return probabilities.view_as(probabilities);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto balance = kept(*ctx);
    const at::Tensor rows = balance->rows().clamp_min(1.0);
    // The loss of all labels is labels N sum_e chosen_e p_e / rows^2 with the summed probabilities p_e, so
    // its derivative by a probability of expert e is labels N chosen_e / rows^2 for every token.
    const at::Tensor of_expert = balance->chosen() * balance->label_tokens() * balance->loss_gradient_ *
                                 (balance->weights_.balance * static_cast<double>(balance->num_experts_) *
                                  ctx->saved_data["share"].toDouble()) /
                                 (rows * rows);
    const at::Tensor of_token = of_expert.to(grads[0].scalar_type()).expand_as(grads[0]);
    const auto added = ctx->saved_data.find("is_added");
    const bool has_added = added != ctx->saved_data.end();
    return {
        grads[0] + without_added(of_token, has_added ? added->second.toTensor() : at::Tensor()), {}, {}, {}};
  }
};

struct RouterBalance::LossFunction : torch::autograd::Function<LossFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& loss, const at::Tensor& added,
                            RouterBalance* balance) {
    keep(*ctx, balance);
    return loss + added;
  }
  // Runs before the backward of every layer, which reads loss_gradient_.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    kept(*ctx)->loss_gradient_ = grads[0].detach().to(at::kDouble).view({1});
    return {grads[0], {}, {}};
  }
};

struct RouterBalance::WithSumsFunction : torch::autograd::Function<WithSumsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, RouterBalance* balance) {
    keep(*ctx, balance);
    return at::cat({hidden, balance->encode(hidden)});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto balance = kept(*ctx);
    const int64_t tokens = balance->take(grads[0]);
    return {grads[0].narrow(0, 0, tokens), {}};
  }
};

struct RouterBalance::TakeSumsFunction : torch::autograd::Function<TakeSumsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& carried, int64_t tokens,
                            RouterBalance* balance) {
    keep(*ctx, balance);
    return carried.narrow(0, 0, tokens).clone();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {at::cat({grads[0], kept(*ctx)->encode(grads[0])}), {}, {}};
  }
};

RouterBalance::RouterBalance(int64_t num_experts, const RouterLossWeights& weights, at::Device device)
    : num_experts_(num_experts), weights_(weights) {
  const auto options = at::TensorOptions(device).dtype(at::kDouble);
  sums_ = at::zeros({num_sums(num_experts)}, options);
  loss_gradient_ = at::zeros({1}, options);
}

at::Tensor RouterBalance::add_logits(const at::Tensor& logits, const at::Tensor& is_added, double share) {
  if (!is_complete_) {
    const at::NoGradGuard no_grad;
    const at::Tensor squared = wide(logits.detach()).logsumexp(1, /*keepdim=*/true).square();
    squares().add_(without_added(squared.to(at::kDouble), is_added).sum());
  }
  if (weights_.z == 0.0 || !at::GradMode::is_enabled() || !logits.requires_grad()) return logits;
  return LogitsFunction::apply(logits, is_added.defined() ? std::optional(is_added) : std::nullopt, this,
                               share);
}

at::Tensor RouterBalance::add_layer(const at::Tensor& values, const at::Tensor& chosen_experts,
                                    const at::Tensor& is_added, double share) {
  if (!is_complete_) {
    const at::NoGradGuard no_grad;
    const at::Tensor counted = at::ones({values.size(0), 1}, sums_.options());
    const at::Tensor weight = without_added(counted, is_added);
    probabilities().add_((values.detach().to(at::kDouble) * weight).sum(0));
    chosen().index_add_(0, chosen_experts.flatten(), weight.expand(chosen_experts.sizes()).flatten());
    rows().add_(weight.sum());
  }
  if (weights_.balance == 0.0 || !at::GradMode::is_enabled() || !values.requires_grad()) return values;
  return LayerFunction::apply(values, is_added.defined() ? std::optional(is_added) : std::nullopt, this,
                              share);
}

void RouterBalance::count_labels(const at::Tensor& labels) {
  label_tokens().add_((labels != kIgnoreLabel).sum().to(sums_.options()));
}

at::Tensor RouterBalance::add_loss(const at::Tensor& loss, const at::Tensor& labels,
                                   const at::Tensor& values) {
  is_complete_ = true;
  const at::Tensor rows_seen = rows().clamp_min(1.0);
  const at::Tensor own_labels = (labels != kIgnoreLabel).sum().to(sums_.options());
  const at::Tensor balance = (chosen() * probabilities()).sum() / (rows_seen * rows_seen) * own_labels *
                             static_cast<double>(num_experts_);
  const at::Tensor z = squares() / rows_seen * own_labels;
  if (values.defined()) values.add_(at::cat({balance, z}));
  const at::Tensor added =
      (balance * weights_.balance + z * weights_.z).to(loss.scalar_type()).view(loss.sizes());
  if (!at::GradMode::is_enabled() || !loss.requires_grad()) return loss + added;
  return LossFunction::apply(loss, added, this);
}

int64_t RouterBalance::carried_rows(int64_t num_experts, int64_t hidden_size, at::ScalarType type) {
  const int64_t bytes = (num_sums(num_experts) + 1) * static_cast<int64_t>(sizeof(double));
  const int64_t row = hidden_size * static_cast<int64_t>(c10::elementSize(type));
  return (bytes + row - 1) / row;
}

at::Tensor RouterBalance::encode(const at::Tensor& hidden) const {
  const int64_t width = hidden.size(1), count = carried_rows(num_experts_, width, hidden.scalar_type());
  const at::Tensor rows = at::zeros({count, width}, hidden.options().requires_grad(false));
  const at::Tensor values = at::cat({sums_, loss_gradient_}).view(at::kByte);
  rows.view({-1}).view(at::kByte).narrow(0, 0, values.size(0)).copy_(values);
  return rows;
}

int64_t RouterBalance::take(const at::Tensor& carried) {
  const int64_t count = carried_rows(num_experts_, carried.size(1), carried.scalar_type());
  const int64_t tokens = carried.size(0) - count;
  const at::Tensor bytes = carried.narrow(0, tokens, count).contiguous().view({-1}).view(at::kByte);
  const int64_t sums = num_sums(num_experts_);
  const int64_t size = (sums + 1) * static_cast<int64_t>(sizeof(double));
  const at::Tensor values = bytes.narrow(0, 0, size).clone().view(at::kDouble);
  sums_ = values.narrow(0, 0, sums).clone();
  loss_gradient_ = values.narrow(0, sums, 1).clone();
  return tokens;
}

at::Tensor RouterBalance::with_sums(const at::Tensor& hidden) {
  is_complete_ = true;
  if (!at::GradMode::is_enabled() || !hidden.requires_grad()) return at::cat({hidden, encode(hidden)});
  return WithSumsFunction::apply(hidden, this);
}

at::Tensor RouterBalance::take_sums(const at::Tensor& carried) {
  const int64_t tokens = take(carried.detach());
  if (!at::GradMode::is_enabled() || !carried.requires_grad()) return carried.narrow(0, 0, tokens);
  return TakeSumsFunction::apply(carried, tokens, this);
}

}  // namespace tessera::nn
