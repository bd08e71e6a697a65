#include "tessera/nn/linear.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/small_linear.h"

namespace tessera::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias, at::ScalarType dtype)
    : in_features_(in_features), out_features_(out_features) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({out_features, in_features}, options));
  if (with_bias) bias = register_parameter("bias", at::empty({out_features}, options));
}

at::Tensor Linear::forward(const ops::Activation& x) {
  const auto optional_bias = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  if (adapter_ != nullptr) return adapter_->forward(x, weight, optional_bias);
  return ops::linear(x, weight, optional_bias);
}

std::vector<at::Tensor> forward_all(const ops::Activation& x, std::initializer_list<Linear*> layers) {
  std::vector<at::Tensor> results;
  bool are_small = true;
  for (const Linear* layer : layers) {
    are_small = are_small && layer->adapter() == nullptr && ops::is_small_linear(x.value(), layer->weight) &&
                layer->weight.scalar_type() == (*layers.begin())->weight.scalar_type();
  }
  if (!are_small) {
    for (Linear* layer : layers) results.push_back(layer->forward(x));
    return results;
  }
  std::vector<ops::LinearOperands> operands;
  for (const Linear* layer : layers) {
    operands.push_back({layer->weight, layer->bias.defined() ? std::optional(layer->bias) : std::nullopt});
  }
  return ops::small_linears(x.value(), operands);
}

void Linear::set_adapter(const std::shared_ptr<LinearAdapter>& adapter, const std::string& name) {
  if (!refusal_.empty()) {
    throw Error(ErrorKind::Config, "ADAPTER-TARGET", "no adapter fits '" + name + "': the layer " + refusal_);
  }
  TESSERA_ASSERT(adapter != nullptr && adapter_ == nullptr, "a layer takes one adapter");
  for (const auto& child : adapter->named_children()) register_module(child.key(), child.value());
  adapter_ = adapter;
}

}  // namespace tessera::nn
