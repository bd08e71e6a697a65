#include "tessera/nn/mlp.h"

#include "tessera/ops/swiglu.h"

namespace tessera::nn {

MLP::MLP(int64_t hidden_size, int64_t intermediate_size, bool bias, at::ScalarType dtype) {
  gate_proj =
      register_module("gate_proj", std::make_shared<Linear>(hidden_size, intermediate_size, bias, dtype));
  up_proj = register_module("up_proj", std::make_shared<Linear>(hidden_size, intermediate_size, bias, dtype));
  down_proj =
      register_module("down_proj", std::make_shared<Linear>(intermediate_size, hidden_size, bias, dtype));
}

at::Tensor MLP::forward(const ops::Activation& x) {
  return run(x, [this](const ops::Activation& in) { return run_gated(in); });
}

at::Tensor MLP::run_gated(const ops::Activation& x) const {
  const auto projected = forward_all(x, {gate_proj.get(), up_proj.get()});
  if (!recomputes_hidden_) return down_proj->forward(ops::swiglu_activation(projected[0], projected[1]));
  // Of x, its source if it has one, which is kept for the gradients of the weights.
  const auto again = [gate = gate_proj, up = up_proj, source = x.source(),
                      value = x.source() == nullptr ? x.value() : at::Tensor()] {
    const auto made = forward_all(source == nullptr ? value : source->value(), {gate.get(), up.get()});
    return ops::SwigluInputs{made[0], made[1]};
  };
  return down_proj->forward(ops::swiglu_activation(projected[0], projected[1], again));
}

}  // namespace tessera::nn
