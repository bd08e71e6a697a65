#include "tessera/nn/layer_inputs.h"

#include <cmath>

#include <ATen/ATen.h>

namespace tessera::nn {

LayerInputs::LayerInputs(torch::nn::Module& parent, const LayerInputsOptions& o, at::ScalarType dtype)
    : hidden_size_(o.hidden_size), num_layers_(o.num_layers), size_(o.size) {
  projection =
      register_below(parent, o.projection,
                     std::make_shared<Linear>(o.hidden_size, o.num_layers * o.size, /*bias=*/false, dtype));
  norm = register_below(parent, o.norm_name, make_norm(o.size, o.norm, dtype));
}

std::vector<at::Tensor> LayerInputs::forward(const at::Tensor& x, const at::Tensor& rows) const {
  if (parallel() == nullptr) return make(x, rows).unbind(0);
  // One exchange brings both.
  return run(at::cat({x, rows}, 1),
             [this](const ops::Activation& both) {
               const auto parts = both.value().split_with_sizes({hidden_size_, num_layers_ * size_}, 1);
               return make(parts[0].contiguous(), parts[1]);
             })
      .unbind(0);
}

// Returns [layers, tokens, size].
at::Tensor LayerInputs::make(const at::Tensor& x, const at::Tensor& rows) const {
  const std::vector<int64_t> by_layer = {x.size(0), num_layers_, size_};
  const at::Tensor projected = projection->forward(x) * (1.0 / std::sqrt(static_cast<double>(hidden_size_)));
  const at::Tensor both = (norm->forward(projected.view(by_layer)) + rows.reshape(by_layer)) * std::sqrt(0.5);
  return both.transpose(0, 1).contiguous();
}

LayerInput::LayerInput(torch::nn::Module& block, const LayerInputsOptions& o, at::ScalarType dtype)
    : activation_(o.activation) {
  const auto add = [&](const std::string& name, int64_t in, int64_t outputs) {
    return register_below(block, name, std::make_shared<Linear>(in, outputs, /*bias=*/false, dtype));
  };
  gate = add(o.gate, o.hidden_size, o.size);
  out = add(o.out, o.size, o.hidden_size);
  out_norm = register_below(block, o.out_norm, make_norm(o.hidden_size, o.norm, dtype));
}

at::Tensor LayerInput::forward(const at::Tensor& x, const at::Tensor& v) const {
  return out_norm->forward(run(x, [&](const ops::Activation& in) {
    const at::Tensor gates = gate->forward(in);
    // The ranks that share the layer have a part of the gates each.
    const at::Tensor own =
        gates.size(1) == v.size(1) ? v : v.narrow(1, gate->first_output(), gates.size(1)).contiguous();
    // The nonlinearity runs in the product type of the layers around it, as in an MLP.
    const ops::ProductScope products(out->product_type());
    return out->forward(ops::mlp_activation(activation_, {gates, own}));
  }));
}

}  // namespace tessera::nn
