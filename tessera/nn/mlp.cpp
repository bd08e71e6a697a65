#include "tessera/nn/mlp.h"

#include <functional>
#include <optional>
#include <utility>

#include "tessera/nn/random_scope.h"

namespace tessera::nn {
namespace {

// Returns what the projections make of x. `gate` is null in an MLP without a gate.
ops::MlpInputs project(const ops::Activation& x, Linear* gate, Linear& up) {
  if (gate == nullptr) return {up.forward(x), {}};
  const auto made = forward_all(x, {gate, &up});
  return {made[0], made[1]};
}

}  // namespace

MLP::MLP(const MLPOptions& o, at::ScalarType dtype) : activation_(o.activation) {
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, o.bias, dtype));
  };
  if (!o.gate.empty()) gate_proj = add(o.gate, o.hidden_size, o.intermediate_size);
  up_proj = add(o.up, o.hidden_size, o.intermediate_size);
  down_proj = add(o.down, o.intermediate_size, o.hidden_size);
}

at::Tensor MLP::forward(const ops::Activation& x) {
  return run(x, [this](const ops::Activation& in) { return run_hidden(in); });
}

at::Tensor MLP::run_hidden(const ops::Activation& x) const {
  const ops::MlpInputs inputs = project(x, gate_proj.get(), *up_proj);
  const auto activated = [&](std::function<ops::MlpInputs()> again) {
    // The nonlinearity runs in the projections' product type: down_proj reads its result in the forward, and
    // the products of gate_proj and up_proj read its gradients in the backward.
    const ops::ProductScope products(down_proj->product_type());
    return ops::mlp_activation(activation_, inputs, std::move(again));
  };
  if (!recomputes_hidden_) return down_proj->forward(activated({}));
  // The recomputation holds x's source if there is one, since the source is kept for the gradients of the
  // weights anyway, otherwise x itself. It also holds the place of dropout, so that it draws the masks of the
  // forward.
  const RandomPlace* const here = RandomScope::current();
  const auto again = [gate = gate_proj, up = up_proj, source = x.source(),
                      value = x.source() == nullptr ? x.value() : at::Tensor(),
                      place = here == nullptr ? std::nullopt : std::optional(*here)] {
    std::optional<RandomScope> scope;
    if (place) scope.emplace(*place);
    return project(source == nullptr ? value : source->value(), gate.get(), *up);
  };
  return down_proj->forward(activated(again));
}

}  // namespace tessera::nn
