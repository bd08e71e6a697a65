#include "tessera/peft/lora.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/core/strings.h"
#include "tessera/nn/random_scope.h"
#include "tessera/ops/lora.h"
#include "tessera/peft/targets.h"

namespace tessera::peft {
namespace {

constexpr const char* kSuffixA = ".lora_A.weight";
constexpr const char* kSuffixB = ".lora_B.weight";

// Decides by its name whether a layer gets an adapter, and remembers which wanted names it has met.
class TargetMatcher {
 public:
  explicit TargetMatcher(const LoraOptions& options) : options_(options) {
    if (!options.target_regex.empty()) pattern_ = std::make_unique<NamePattern>(options.target_regex);
  }

  bool matches(const std::string& name, bool takes_adapter) {
    bool found = options_.all_linear && takes_adapter;
    if (pattern_ != nullptr && pattern_->matches(name)) found = true;
    for (const std::string& wanted : options_.target_modules) {
      if (!is_module_named(name, wanted)) continue;
      met_.insert(wanted);
      found = true;
    }
    return found;
  }

  std::vector<std::string> unmet() const {
    std::vector<std::string> names;
    for (const std::string& wanted : options_.target_modules) {
      if (met_.count(wanted) == 0) names.push_back(wanted);
    }
    return names;
  }

 private:
  const LoraOptions& options_;
  std::unique_ptr<NamePattern> pattern_;
  std::set<std::string> met_;
};

bool is_saved(const std::string& module_name, const LoraOptions& options) {
  return std::any_of(options.modules_to_save.begin(), options.modules_to_save.end(),
                     [&](const std::string& wanted) { return is_module_named(module_name, wanted); });
}

std::vector<std::string> find_saved(const torch::nn::Module& model, const LoraOptions& options,
                                    const std::vector<std::string>& untouchable) {
  std::vector<std::string> saved, all;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (item.value()->parameters(/*recurse=*/false).empty()) continue;
    all.push_back(item.key());
    if (is_saved(item.key(), options)) saved.push_back(item.key());
  }
  for (const std::string& wanted : options.modules_to_save) {
    const auto named = [&](const std::string& name) { return is_module_named(name, wanted); };
    if (std::any_of(untouchable.begin(), untouchable.end(), named)) {
      throw Error(
          ErrorKind::Config, "LORA-TARGET",
          "'" + wanted + "' of lora_modules_to_save shares its weight with another module (tied embeddings)")
          .about("lora_modules_to_save")
          .hint("train a model with untied embeddings, or leave it out");
    }
    if (std::none_of(saved.begin(), saved.end(), named)) {
      throw Error(ErrorKind::Config, "LORA-TARGET",
                  "'" + wanted + "' of lora_modules_to_save names no module")
          .about("lora_modules_to_save")
          .need(join(kinds_of(all), ", "));
    }
  }
  return saved;
}

// The layers to adapt, by name.
using Layers = std::vector<std::pair<std::string, std::shared_ptr<nn::Linear>>>;

Error no_such_layer(const LoraOptions& options, const std::vector<std::string>& unmet,
                    const std::vector<std::string>& linear_names) {
  const std::string wanted = !unmet.empty()                  ? "'" + join(unmet, "', '") + "'"
                             : !options.target_regex.empty() ? "'" + options.target_regex + "'"
                                                             : "lora_target_linear";
  Error error(ErrorKind::Config, "LORA-TARGET", "no linear layer of the model is named " + wanted);
  error.need(linear_names.empty() ? "a model with linear layers" : join(kinds_of(linear_names), ", "));
  std::vector<std::string> kinds, near;
  for (const std::string& name : linear_names) kinds.push_back(last_component(name));
  for (const std::string& name : unmet) {
    const std::string nearest = nearest_name(last_component(name), kinds);
    if (!nearest.empty()) near.push_back("'" + nearest + "'");
  }
  if (!near.empty()) error.hint("did you mean " + join(near, ", ") + "?");
  return error;
}

Layers find_adapted(const torch::nn::Module& model, const LoraOptions& options) {
  TargetMatcher matcher(options);
  std::vector<std::string> linear_names;
  Layers chosen;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto layer = std::dynamic_pointer_cast<nn::Linear>(item.value());
    if (layer == nullptr) continue;
    const bool takes_adapter = layer->refusal().empty();
    if (takes_adapter) linear_names.push_back(item.key());
    if (is_saved(item.key(), options)) continue;
    if (matcher.matches(item.key(), takes_adapter)) chosen.emplace_back(item.key(), layer);
  }
  const std::vector<std::string> unmet = matcher.unmet();
  if (chosen.empty() || !unmet.empty()) throw no_such_layer(options, unmet, linear_names);
  return chosen;
}

}  // namespace

std::vector<std::string> kinds_of(const std::vector<std::string>& names) {
  std::vector<std::string> kinds;
  for (const std::string& name : names) {
    const std::string kind = last_component(name);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

LoraTargets find_lora_targets(const torch::nn::Module& model, const LoraOptions& options,
                              const std::vector<std::string>& untouchable) {
  check_options(options);
  LoraTargets targets;
  targets.saved = find_saved(model, options, untouchable);
  for (const auto& [name, layer] : find_adapted(model, options)) targets.adapted.push_back(name);
  return targets;
}

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
    refuse("LoRA has nothing to adapt", "no target", "lora_target_linear: true, or lora_target_modules");
  }
  if (!o.target_regex.empty() && !o.target_modules.empty()) {
    refuse("LoRA takes its targets as a list or as one expression", "both", "one of them");
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
  const at::ScalarType dtype = layer.weight.scalar_type();
  const int64_t in = layer.in_features(), out = layer.out_features();
  const auto uniform = nn::InitialValue::uniform(1.0 / std::sqrt(static_cast<double>(in)));
  a_ = register_module("lora_A", std::make_shared<Factor>(options.rank, in, dtype, uniform));
  b_ = register_module("lora_B",
                       std::make_shared<Factor>(out, options.rank, dtype, nn::InitialValue::zeros()));
}

// The factors are children of the layer, so train() and eval() reach them. This adapter itself is no child.
bool LoraAdapter::drops() const { return dropout_ > 0.0 && a_->is_training(); }

at::Tensor LoraAdapter::forward(const ops::Activation& x, const at::Tensor& weight,
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
  const Layers chosen = find_adapted(model, options);
  for (auto& parameter : model.named_parameters()) {
    const std::string& name = parameter.key();
    const size_t dot = name.rfind('.');
    const std::string module = dot == std::string::npos ? "" : name.substr(0, dot);
    const bool trained = std::find(targets.saved.begin(), targets.saved.end(), module) != targets.saved.end();
    parameter.value().set_requires_grad(trained);
  }
  for (const auto& [name, layer] : chosen) {
    const auto adapter = std::make_shared<LoraAdapter>(*layer, options, name);
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
