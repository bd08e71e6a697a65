#include "tessera/peft/lora.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/peft/find_targets.h"
#include "tessera/peft/layer_options.h"

namespace tessera::peft {
namespace {

constexpr const char* kSuffixes[] = {".lora_A.weight",       ".lora_B.weight",
                                     ".lora_B.bias",         ".lora_magnitude_vector.weight",
                                     ".lora_A_start.weight", ".lora_B_start.weight"};

}  // namespace

LoraStart lora_start(const std::string& name) {
  using Kind = LoraStart::Kind;
  static const std::pair<const char*, Kind> kKinds[] = {{"true", Kind::Standard},
                                                        {"false", Kind::Random},
                                                        {"gaussian", Kind::Gaussian},
                                                        {"pissa", Kind::Pissa},
                                                        {"olora", Kind::Olora}};
  for (const auto& [known, kind] : kKinds) {
    if (name == known) return {kind, 0};
  }
  constexpr std::string_view kFast = "pissa_niter_";
  int64_t iterations = 0;
  if (name.starts_with(kFast)) {
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kFast.size(), end, iterations);
    if (read.ec == std::errc() && read.ptr == end && iterations >= 1 && iterations <= 1000)
      return {Kind::Pissa, iterations};
  }
  throw Error(ErrorKind::Config, "LORA", "unknown start of LoRA factors")
      .got("'" + name + "'")
      .need("true, false, gaussian, pissa, pissa_niter_<number of iterations> or olora")
      .about("peft_init_lora_weights");
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
    refuse("LoRA has no layers to adapt", "no target", "lora_target_linear: true, or lora_target_modules");
  }
  if (!o.target_regex.empty() && !o.target_modules.empty()) {
    refuse("LoRA targets are either a list or one expression", "both", "one of them");
  }
  if (!o.layers_to_transform.empty() && !o.target_regex.empty()) {
    refuse("LoRA can select layers by number only among named targets", "one expression",
           "target modules as a list");
  }
  if (o.use_dora && o.has_bias)
    refuse("DoRA has no bias of its own", "both", "one of use_dora and lora_bias");
  (void)lora_start(o.start);
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
  return std::ranges::any_of(kSuffixes, [&](const char* suffix) { return name.ends_with(suffix); });
}

}  // namespace tessera::peft
