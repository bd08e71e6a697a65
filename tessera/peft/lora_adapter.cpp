#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/core/strings.h"
#include "tessera/nn/random_scope.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/lora.h"
#include "tessera/peft/dora.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {
namespace {

// Returns the initial values of A and B. Those of a start that takes from the base are adapter_start.h's.
// PEFT's random B of several experts has the bound of one product with as many columns as all have.
std::pair<nn::InitialValue, nn::InitialValue> initial_values(const LoraStart& start, int64_t rank,
                                                             int64_t in_features, int64_t experts) {
  const auto uniform = [](int64_t width) {
    return nn::InitialValue::uniform(1.0 / std::sqrt(static_cast<double>(width)));
  };
  const nn::InitialValue zeros = nn::InitialValue::zeros();
  if (start.kind == LoraStart::Kind::Gaussian) {
    return {nn::InitialValue::gaussian(1.0 / static_cast<double>(rank)), zeros};
  }
  if (start.kind == LoraStart::Kind::Random) return {uniform(in_features), uniform(rank * experts)};
  return {uniform(in_features), zeros};
}

void check_rank(const nn::Linear& layer, const LoraOptions& options, const std::string& site) {
  const int64_t most = std::min(layer.in_features(), layer.out_features());
  if (options.rank <= most) return;
  Error error(ErrorKind::Config, "LORA", "the rank is above that of the weight of '" + site + "'");
  throw error.got(std::to_string(options.rank))
      .need("at most " + std::to_string(most) + " with peft_init_lora_weights: " + options.start)
      .about("lora_r");
}

}  // namespace

struct LoraAdapter::Factor : torch::nn::Module, nn::HasInitialValues {
  Factor(const std::vector<int64_t>& shape, at::ScalarType dtype, nn::InitialValue initial)
      : initial(initial) {
    weight =
        register_parameter("weight", at::empty(shape, at::TensorOptions().dtype(dtype).device(at::kMeta)));
  }
  void add_bias(int64_t size) {
    bias = register_parameter("bias", at::empty({size}, weight.options().requires_grad(false)));
  }
  void freeze() { weight.set_requires_grad(false); }

  nn::InitialValue initial_value(std::string_view name) const override {
    return name == "bias" ? nn::InitialValue::zeros() : initial;
  }

  at::Tensor weight, bias;
  nn::InitialValue initial;
};

LoraAdapter::LoraAdapter(const nn::Linear& layer, const LoraOptions& options, const std::string& site,
                         int64_t experts)
    : scaling_(lora_scaling(options)),
      dropout_(options.dropout),
      stream_(stream_of((site + ".lora_dropout").c_str())) {
  const at::ScalarType dtype = layer.dtype();
  const int64_t in = layer.in_features(), out = layer.out_features(), rank = options.rank;
  const LoraStart start = lora_start(options.start);
  const auto [of_a, of_b] = initial_values(start, rank, in, experts);
  const auto add = [&](const char* name, std::vector<int64_t> shape, const nn::InitialValue& initial) {
    return register_module(name, std::make_shared<Factor>(shape, dtype, initial));
  };
  a_ = add("lora_A", {rank, in}, of_a);
  b_ = add("lora_B", {out, rank}, of_b);
  if (options.has_bias) b_->add_bias(out);
  if (options.use_dora) magnitude_ = add("lora_magnitude_vector", {out}, nn::InitialValue::ones());
  if (start.reads_base()) check_rank(layer, options, site);
  if (!start.takes_from_base()) return;
  a_start_ = add("lora_A_start", {rank, in}, of_a);
  b_start_ = add("lora_B_start", {out, rank}, nn::InitialValue::zeros());
  a_start_->freeze();
  b_start_->freeze();
}

// The factors are children of the layer, so train() and eval() reach them. This adapter itself is no child.
bool LoraAdapter::drops() const { return dropout_ > 0.0 && a_->is_training(); }

void LoraAdapter::set_input_part(int64_t first, int64_t in_features, const ops::ChangeInPlace& sum) {
  input_ = {first, in_features};
  sum_ = sum;
}

at::Tensor LoraAdapter::forward(const ops::Activation& x, const ops::Weight& weight,
                                const std::optional<at::Tensor>& bias, const RowsOut& output) {
  std::optional<at::Tensor> mask;
  if (drops()) mask = nn::dropout_mask_here(x.value(), dropout_, stream_, input_);
  at::Tensor y = magnitude_ == nullptr ? directed(x, weight, bias, mask, output)
                                       : with_magnitude(x, weight, bias, mask, output);
  if (!b_->bias.defined()) return y;
  // The parts of y have been added up already if its rows have been handed on.
  return y + b_->bias * (scaling_ * (output == nullptr ? bias_share() : 1.0));
}

double LoraAdapter::bias_share() const {
  return input_.width > 0 ? static_cast<double>(a_->weight.size(1)) / static_cast<double>(input_.width) : 1.0;
}

at::Tensor LoraAdapter::fixed_product(const ops::Activation& x, const ops::Weight& weight,
                                      const std::optional<at::Tensor>& bias, const RowsOut& output) const {
  if (a_start_ == nullptr) return ops::linear(x, weight, bias, output);
  return ops::lora_linear(x, weight, bias, a_start_->weight, b_start_->weight, scaling_, std::nullopt,
                          output);
}

at::Tensor LoraAdapter::change(const at::Tensor& x) const {
  TESSERA_ASSERT(magnitude_ == nullptr, "the change of an adapter that is a sum");
  at::Tensor y = trained_product(x, {});
  if (a_start_ != nullptr) y = y + ops::linear(ops::linear(x, a_start_->weight), b_start_->weight) * scaling_;
  return b_->bias.defined() ? y + b_->bias * (scaling_ * bias_share()) : y;
}

at::Tensor LoraAdapter::trained_product(const at::Tensor& x, const RowsOut& output) const {
  const ops::ProductScope products(ops::ProductType::OfOperands);
  return ops::linear(ops::linear(x, a_->weight), b_->weight, std::nullopt, output) * scaling_;
}

// The layer with the weight W + scaling B A, and without B0 A0 if there is one.
at::Tensor LoraAdapter::directed(const ops::Activation& x, const ops::Weight& weight,
                                 const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mask,
                                 const RowsOut& output) const {
  if (a_start_ == nullptr)
    return ops::lora_linear(x, weight, bias, a_->weight, b_->weight, scaling_, mask, output);
  if (!mask) {
    return ops::lora_linear(x, weight, bias, at::cat({a_->weight, a_start_->weight}),
                            at::cat({b_->weight, b_start_->weight}, 1), scaling_, std::nullopt, output);
  }
  // A product is the first reader of x, whose rows may still be coming in (row_exchange.h).
  const at::Tensor fixed = fixed_product(x, weight, bias, output);
  return fixed + trained_product(x.value() * *mask, output);
}

// Does the same with the rows of the weight brought to the trained lengths. Dropout is on the change of the
// layer alone, as in PEFT: y = W x + b + (W' - W) (x * mask).
at::Tensor LoraAdapter::with_magnitude(const ops::Activation& x, const ops::Weight& weight,
                                       const std::optional<at::Tensor>& bias,
                                       const std::optional<at::Tensor>& mask, const RowsOut& output) const {
  const bool has_start = a_start_ != nullptr;
  const at::Tensor a = has_start ? at::cat({a_->weight.detach(), a_start_->weight}) : a_->weight;
  const at::Tensor b = has_start ? at::cat({b_->weight.detach(), b_start_->weight}, 1) : b_->weight;
  const at::Tensor norms = row_norms(weight, a, b, scaling_, sum_);
  const at::Tensor factors = (magnitude_->weight / norms).to(x.value().scalar_type());
  if (!mask) {
    const at::Tensor y = directed(x, weight, std::nullopt, std::nullopt, output) * factors;
    return bias ? y + *bias : y;
  }
  const at::Tensor fixed = fixed_product(x, weight, bias, output);
  const at::Tensor dropped = x.value() * *mask;
  return fixed + fixed_product(dropped, weight, std::nullopt, output) * (factors - 1.0) +
         trained_product(dropped, output) * factors;
}

std::vector<nn::AdapterParameter> LoraAdapter::adapter_parameters() const {
  std::vector<nn::AdapterParameter> parameters;
  for (const auto& a : {a_, a_start_}) {
    if (a != nullptr) parameters.push_back({a->weight, /*in_dim=*/1, std::nullopt});
  }
  for (const auto& b : {b_, b_start_, magnitude_}) {
    if (b != nullptr) parameters.push_back({b->weight, std::nullopt, /*out_dim=*/0});
  }
  if (b_->bias.defined()) parameters.push_back({b_->bias, std::nullopt, /*out_dim=*/0});
  return parameters;
}

}  // namespace tessera::peft
