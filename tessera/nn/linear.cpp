#include "tessera/nn/linear.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/row_output.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/small_linear.h"

namespace tessera::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias, at::ScalarType dtype)
    : dtype_(dtype) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({out_features, in_features}, options));
  if (with_bias) bias = register_parameter("bias", at::empty({out_features}, options));
}

at::Tensor Linear::forward(const ops::Activation& x) {
  if (parallel() == nullptr) {
    if (!bias.defined()) return multiply(x, std::nullopt);
    return multiply(x, bias_share_ == 1.0 ? bias : bias * bias_share_);
  }
  // The product hands its rows to a RowOutput as it makes them, so output() is not called.
  const auto* const output = dynamic_cast<const RowOutput*>(parallel());
  const auto rows = output != nullptr ? output->output_rows() : nullptr;
  const at::Tensor y = rows != nullptr
                           ? multiply(output->input(x), std::nullopt, rows)
                           : run(x, [this](const ops::Activation& in) { return multiply(in, std::nullopt); });
  return bias.defined() ? y + bias.to(y.scalar_type()) : y;
}

at::Tensor Linear::multiply(const ops::Activation& x, const std::optional<at::Tensor>& added,
                            const c10::intrusive_ptr<ops::RowExchange>& output) {
  const ops::ProductScope products(product_type_);
  return adapter_ != nullptr ? adapter_->forward(x, operand(), added, output)
                             : ops::linear(x, operand(), added, output);
}

std::vector<at::Tensor> forward_all(const ops::Activation& x, std::initializer_list<Linear*> layers) {
  std::vector<at::Tensor> results;
  bool are_small = true;
  for (const Linear* layer : layers) {
    are_small = are_small && layer->adapter() == nullptr && layer->parallel() == nullptr &&
                ops::is_small_linear(x.value(), layer->operand()) &&
                layer->weight.scalar_type() == (*layers.begin())->weight.scalar_type();
  }
  if (!are_small) {
    const bool is_matrix = x.value().dim() == 2;
    // The layers share one cast of x to e4m3.
    ops::E4m3Operand shared(x.value());
    const ops::E4m3OperandsScope scope(
        is_matrix ? (*layers.begin())->product_type() : ops::ProductType::OfOperands, {&shared});
    for (Linear* layer : layers) results.push_back(layer->forward(x));
    return results;
  }
  std::vector<ops::LinearOperands> operands;
  for (const Linear* layer : layers) {
    operands.push_back({layer->operand(), layer->bias.defined() ? std::optional(layer->bias) : std::nullopt});
  }
  return ops::small_linears(x.value(), operands);
}

void Linear::set_form(const io::BlockForm& form) {
  TESSERA_ASSERT(!form_, "a weight takes a form once");
  make_coded(weight, form);
  form_ = form;
  product_type_ = ops::ProductType::OfOperands;
}

void Linear::set_adapter(const std::shared_ptr<LinearAdapter>& adapter, const std::string& name) {
  if (!refusal_.empty()) {
    throw Error(ErrorKind::Config, "ADAPTER-TARGET", "no adapter fits '" + name + "': the layer " + refusal_)
        .about("lora_modules_to_save");
  }
  TESSERA_ASSERT(adapter != nullptr && adapter_ == nullptr, "a layer takes one adapter");
  for (const auto& child : adapter->named_children()) register_module(child.key(), child.value());
  adapter_ = adapter;
}

std::shared_ptr<LinearAdapter> Linear::take_adapter() {
  TESSERA_ASSERT(adapter_ != nullptr, "an adapter to take");
  for (const auto& child : adapter_->named_children()) unregister_module(child.key());
  return std::exchange(adapter_, nullptr);
}

}  // namespace tessera::nn
