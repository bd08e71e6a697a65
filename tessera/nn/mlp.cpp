#include "tessera/nn/mlp.h"

#include <functional>
#include <optional>
#include <utility>

#include "tessera/nn/random_scope.h"
#include "tessera/nn/row_turns.h"

namespace tessera::nn {
namespace {

// SwiGLU of the result is the clamped formula, since silu(slope g) = slope g sigmoid(slope g).
ops::MlpInputs clamped(const ops::MlpInputs& inputs, const std::optional<ClampedGate>& clamp) {
  if (!clamp) return inputs;
  return {inputs.gate.clamp_max(clamp->limit) * clamp->slope,
          (inputs.up.clamp(-clamp->limit, clamp->limit) + 1.0) / clamp->slope};
}

}  // namespace

ops::MlpInputs MLP::Projections::operator()(const ops::Activation& x) const {
  if (both != nullptr) {
    const at::Tensor made = both->forward(x);
    const auto parts = made.view({made.size(0), made.size(1) / (2 * turn), 2, turn}).unbind(2);
    return clamped({parts[0].flatten(1), parts[1].flatten(1)}, clamp);
  }
  if (gate == nullptr) return {up->forward(x), {}};
  const auto made = forward_all(x, {gate.get(), up.get()});
  return clamped({made[0], made[1]}, clamp);
}

MLP::MLP(const MLPOptions& o, at::ScalarType dtype)
    : activation_(o.activation), intermediate_size_(o.intermediate_size), clamp_(o.clamp) {
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    const auto made = std::make_shared<Linear>(in, out, o.bias, dtype);
    return name.empty() ? made : register_below(*this, name, made);
  };
  if (!o.gate_up.empty()) {
    gate_up_proj = add(o.gate_up, o.hidden_size, 2 * o.intermediate_size);
    if (!o.is_stored_in_turns) {
      turn_ = turn_of(o.intermediate_size);
      gate_up_proj->set_stored_rows(rows_in_turns(o.intermediate_size, turn_, 2));
    }
    if (o.is_stored_apart) gate_up_proj->set_stored_apart({o.gate, o.up});
  } else {
    if (!o.gate.empty()) gate_proj = add(o.gate, o.hidden_size, o.intermediate_size);
    up_proj = add(o.is_up_beside ? "" : o.up, o.hidden_size, o.intermediate_size);
  }
  down_proj = add(o.is_down_beside ? "" : o.down, o.intermediate_size, o.hidden_size);
  if (o.has_xielu) act_fn = register_module("act_fn", std::make_shared<XIELU>(dtype));
}

at::Tensor MLP::forward(const ops::Activation& x) {
  return run(x, [this](const ops::Activation& in) { return run_hidden(in); });
}

RowPart MLP::hidden_part() const {
  const int64_t first = up_proj == nullptr ? gate_up_proj->first_output() / 2 : up_proj->first_output();
  return {first, intermediate_size_};
}

at::Tensor MLP::run_hidden(const ops::Activation& x) const {
  const Projections project{gate_proj, up_proj, gate_up_proj, turn_, clamp_};
  const ops::MlpInputs inputs = project(x);
  const auto project_down = [&](const ops::Activation& hidden) {
    if (hidden_dropout_ == nullptr) return down_proj->forward(hidden);
    return down_proj->forward(hidden_dropout_->forward(hidden.value(), hidden_part()));
  };
  if (act_fn != nullptr) return project_down(act_fn->forward(inputs.gate));
  const auto activated = [&](std::function<ops::MlpInputs()> again) {
    // The nonlinearity runs in the projections' product type: down_proj reads its result in the forward, and
    // the products of gate_proj and up_proj read its gradients in the backward.
    const ops::ProductScope products(down_proj->product_type());
    return ops::mlp_activation(activation_, inputs, std::move(again));
  };
  if (!recomputes_hidden_) return project_down(activated({}));
  // The recomputation holds x's source if there is one, since the source is kept for the gradients of the
  // weights anyway, otherwise x itself. It also holds the place of dropout, so that it draws the masks of the
  // forward.
  const RandomPlace* const here = RandomScope::current();
  const auto again = [project, source = x.source(), value = x.source() == nullptr ? x.value() : at::Tensor(),
                      place = here == nullptr ? std::nullopt : std::optional(*here)] {
    std::optional<RandomScope> scope;
    if (place) scope.emplace(*place);
    return project(source == nullptr ? value : source->value());
  };
  return project_down(activated(again));
}

}  // namespace tessera::nn
