#include "tessera/peft/ia3.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/nn/initial_value.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/row_products.h"

namespace tessera::peft {

struct Ia3Adapter::Factors : torch::nn::Module, nn::HasInitialValues {
  Factors(const std::vector<int64_t>& shape, at::ScalarType dtype) {
    const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
    weight = register_parameter("weight", at::empty(shape, options));
  }
  nn::InitialValue initial_value(std::string_view) const override { return nn::InitialValue::ones(); }
  at::Tensor weight;
};

bool multiplies_inputs(const LoraOptions& options, const std::string& layer) {
  return std::ranges::any_of(options.feedforward_modules,
                             [&](const std::string& end) { return layer.ends_with(end); });
}

Ia3Adapter::Ia3Adapter(const nn::Linear& layer, bool is_feedforward)
    : is_feedforward_(is_feedforward), layer_bias_(layer.bias) {
  std::vector<int64_t> shape = {layer.out_features(), 1};
  if (is_feedforward) shape = {1, layer.in_features()};
  factors_ = register_module("ia3_l", std::make_shared<Factors>(shape, layer.dtype()));
}

// A copy: the memory of a parameter may be freed before the backward reads what the product has kept.
at::Tensor Ia3Adapter::factors() const { return factors_->weight.flatten() * 1.0; }

at::Tensor Ia3Adapter::forward(const ops::Activation& x, const ops::Weight& weight,
                               const std::optional<at::Tensor>& bias,
                               const c10::intrusive_ptr<ops::RowExchange>& output) {
  if (is_feedforward_) {
    if (const auto coming = ops::take_coming(x.source()); coming != nullptr) coming->wait_for_all();
    return ops::linear(x.value() * factors(), weight, bias, output);
  }
  const double own_columns = static_cast<double>(x.value().size(-1));
  const at::Tensor own = factors();
  const at::Tensor y = ops::linear(x, weight, std::nullopt, output) * own;
  if (!layer_bias_.defined()) return y;
  // A layer that is cut adds its bias b itself, after the sum over ranks; b (l - 1) is missing then. Ranks
  // that hold other columns of x add their shares of it, unless the parts of y have been added up already.
  const bool is_part = whole_width_ > 0 && output == nullptr;
  const double share = is_part ? own_columns / static_cast<double>(whole_width_) : 1.0;
  const at::Tensor kept = (layer_bias_.detach() * share).to(y.scalar_type());
  return y + kept * (bias ? own : own - 1.0);
}

std::vector<nn::AdapterParameter> Ia3Adapter::adapter_parameters() const {
  if (is_feedforward_) return {{factors_->weight, /*in_dim=*/1, std::nullopt}};
  return {{factors_->weight, std::nullopt, /*out_dim=*/0}};
}

}  // namespace tessera::peft
