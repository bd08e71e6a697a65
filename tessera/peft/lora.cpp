#include "tessera/peft/lora.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/nn/random_scope.h"
#include "tessera/ops/lora.h"
#include "tessera/peft/find_targets.h"
#include "tessera/peft/layer_options.h"

namespace tessera::peft {
namespace {

constexpr const char* kSuffixA = ".lora_A.weight";
constexpr const char* kSuffixB = ".lora_B.weight";

}  // namespace

double lora_scaling(const LoraOptions& options) {
  const double rank = static_cast<double>(options.rank);
  return options.alpha / (options.use_rslora ? std::sqrt(rank) : rank);
}

void check_options(const LoraOptions& o) {
  const auto refuse = [](const std::string& what, const std::string& got, const std::string& need) {
    throw Error(ErrorKind::Config, "LORA", what).got(got).need(need);
  };
  if (o.rank < 1 || o.rank > (1 << 20)) refuse("bad LoRA rank", std::to_string(o.rank), "1 or more");
  if (!std::isfinite(o.alpha) || o.alpha <= 0.0) refuse("bad LoRA alpha", std::to_string(o.alpha), "above 0");
  if (!(o.dropout >= 0.0 && o.dropout < 1.0)) {
    refuse("bad LoRA dropout", std::to_string(o.dropout), "at least 0, below 1");
  }
  if (!o.all_linear && o.target_regex.empty() && o.target_modules.empty()) {
    refuse("LoRA has no layers to adapt", "no target", "lora_target_linear: true, or lora_target_modules");
  }
  if (!o.target_regex.empty() && !o.target_modules.empty()) {
    refuse("LoRA targets are either a list or one expression", "both", "one of them");
  }
  if (!o.layers_to_transform.empty() && o.target_modules.empty()) {
    refuse("LoRA can select layers by number only among named targets", "no list of names",
           "target modules as a list");
  }
  for (const auto& [key, rank] : o.rank_pattern) {
    if (rank < 1 || rank > (1 << 20))
      refuse("bad LoRA rank of '" + key + "'", std::to_string(rank), "1 or more");
  }
  for (const auto& [key, alpha] : o.alpha_pattern) {
    if (!std::isfinite(alpha) || alpha <= 0.0) {
      refuse("bad LoRA alpha of '" + key + "'", std::to_string(alpha), "above 0");
    }
  }
}

LoraAdapter::Factor::Factor(int64_t rows, int64_t columns, at::ScalarType dtype, nn::InitialValue initial)
    : initial(initial) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({rows, columns}, options));
}

LoraAdapter::LoraAdapter(const nn::Linear& layer, const LoraOptions& options, const std::string& site)
    : scaling_(lora_scaling(options)),
      dropout_(options.dropout),
      stream_(stream_of((site + ".lora_dropout").c_str())) {
  const at::ScalarType dtype = layer.dtype();
  const int64_t in = layer.in_features(), out = layer.out_features();
  const auto uniform = nn::InitialValue::uniform(1.0 / std::sqrt(static_cast<double>(in)));
  a_ = register_module("lora_A", std::make_shared<Factor>(options.rank, in, dtype, uniform));
  b_ = register_module("lora_B",
                       std::make_shared<Factor>(out, options.rank, dtype, nn::InitialValue::zeros()));
}

// The factors are children of the layer, so train() and eval() reach them. This adapter itself is no child.
bool LoraAdapter::drops() const { return dropout_ > 0.0 && a_->is_training(); }

at::Tensor LoraAdapter::forward(const ops::Activation& x, const ops::Weight& weight,
                                const std::optional<at::Tensor>& bias,
                                const c10::intrusive_ptr<ops::RowExchange>& output) {
  std::optional<at::Tensor> mask;
  if (drops()) mask = nn::dropout_mask_here(x.value(), dropout_, stream_, input_);
  return ops::lora_linear(x, weight, bias, a_->weight, b_->weight, scaling_, mask, output);
}

std::vector<nn::AdapterParameter> LoraAdapter::adapter_parameters() const {
  return {{a_->weight, /*in_dim=*/1, std::nullopt}, {b_->weight, std::nullopt, /*out_dim=*/0}};
}

LoraTargets apply_lora(torch::nn::Module& model, const LoraOptions& options,
                       const std::vector<std::string>& untouchable) {
  check_options(options);
  LoraTargets targets;
  targets.saved = find_saved(model, options, untouchable);
  const AdaptedLayers chosen = find_adapted(model, options, untouchable);
  const LayerOptions options_of(options);
  for (auto& parameter : model.named_parameters()) {
    const std::string& name = parameter.key();
    const size_t dot = name.rfind('.');
    const std::string module = dot == std::string::npos ? "" : name.substr(0, dot);
    const bool trained = std::find(targets.saved.begin(), targets.saved.end(), module) != targets.saved.end();
    parameter.value().set_requires_grad(trained);
  }
  for (const auto& [name, layer] : chosen) {
    const auto adapter = std::make_shared<LoraAdapter>(*layer, options_of(name), name);
    adapter->train(layer->is_training());
    layer->set_adapter(adapter, name);
    targets.adapted.push_back(name);
    targets.fan_in_fan_out = targets.fan_in_fan_out || layer->is_stored_transposed();
  }
  return targets;
}

bool is_lora_parameter(const std::string& name) {
  return name.ends_with(kSuffixA) || name.ends_with(kSuffixB);
}

}  // namespace tessera::peft
