#include "tessera/peft/lora.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/peft/find_targets.h"
#include "tessera/peft/ia3.h"
#include "tessera/peft/layer_options.h"
#include "tessera/peft/vera.h"

namespace tessera::peft {
namespace {

constexpr const char* kSuffixes[] = {".lora_A.weight",        ".lora_B.weight",
                                     ".lora_B.bias",          ".lora_magnitude_vector.weight",
                                     ".lora_A_start.weight",  ".lora_B_start.weight",
                                     ".ia3_l.weight",         ".vera_lambda_b.weight",
                                     ".vera_lambda_d.weight", ".token_adapter.trainable_tokens_delta",
                                     ".prompt_adapter.weight"};

void check_dropout(double dropout) {
  if (dropout >= 0.0 && dropout < 1.0) return;
  throw Error(ErrorKind::Config, "LORA", "bad LoRA dropout")
      .got(std::to_string(dropout))
      .need("at least 0, below 1");
}

// Refuses options that give no target, or two kinds of targets.
void check_targets(const LoraOptions& o) {
  const auto refuse = [](const char* what, const char* got, const char* need) {
    throw Error(ErrorKind::Config, "LORA", what).got(got).need(need);
  };
  if (o.method == AdapterMethod::Prompt) return;
  const bool needs_target = o.method != AdapterMethod::Norms;
  const bool has_target =
      o.all_linear || !o.target_regex.empty() || !o.target_modules.empty() || !o.target_parameters.empty();
  if (needs_target && !has_target) {
    refuse("LoRA has no layers to adapt", "no target",
           "lora_target_linear: true, lora_target_modules or lora_target_parameters");
  }
  if (!needs_target && o.all_linear) refuse("norms are not linear layers", "all-linear", "names of norms");
  if (!o.target_regex.empty() && !o.target_modules.empty()) {
    refuse("LoRA targets are either a list or one expression", "both", "one of them");
  }
  if (!o.layers_to_transform.empty() && !o.target_regex.empty()) {
    refuse("LoRA can select layers by number only among named targets", "one expression",
           "target modules as a list");
  }
}

// Refuses what PEFT has not for the parameters of experts: the product of A and B is added to the weight
// there, so that nothing can be done to the input of A or the output of B alone.
void check_target_parameters(const LoraOptions& o) {
  if (o.target_parameters.empty()) return;
  const auto refuse = [](const char* what, const char* key) {
    throw Error(ErrorKind::Config, "LORA",
                std::string("LoRA of the parameters of experts (lora_target_parameters) has no ") + what)
        .about(key)
        .need("the key's default");
  };
  if (o.dropout > 0.0) refuse("dropout", "lora_dropout");
  if (o.use_dora) refuse("DoRA", "peft_use_dora");
  if (o.has_bias) refuse("bias", "lora_bias");
  if (lora_start(o.start).reads_base())
    refuse("start that reads the base's weights", "peft_init_lora_weights");
}

// Makes the shared matrices as large as the largest of the layers needs them.
std::shared_ptr<VeraProjections> make_projections(const AdaptedLayers& layers, const VeraOptions& options) {
  int64_t in = 0, out = 0;
  for (const auto& [name, layer] : layers) {
    in = std::max(in, layer->in_features());
    out = std::max(out, layer->out_features());
  }
  return std::make_shared<VeraProjections>(options.rank, in, out,
                                           static_cast<uint64_t>(options.projection_prng_key));
}

std::shared_ptr<nn::LinearAdapter> make_adapter(const nn::Linear& layer, const std::string& name,
                                                const LoraOptions& options, const LayerOptions& options_of,
                                                const LoraTargets& targets) {
  const auto& projections = targets.projections;
  if (options.method == AdapterMethod::Lora) {
    const auto expert = targets.experts.find(name);
    if (expert == targets.experts.end()) return std::make_shared<LoraAdapter>(layer, options_of(name), name);
    const ExpertPlace& place = expert->second;
    return std::make_shared<LoraAdapter>(layer, options_of(place.parameter), name, place.count);
  }
  if (options.method == AdapterMethod::Vera)
    return std::make_shared<VeraAdapter>(layer, options, projections, name);
  return std::make_shared<Ia3Adapter>(layer, multiplies_inputs(options, name));
}

}  // namespace

LoraStart lora_start(const std::string& name) {
  using Kind = LoraStart::Kind;
  static const std::pair<const char*, Kind> kKinds[] = {{"true", Kind::Standard},     {"false", Kind::Random},
                                                        {"gaussian", Kind::Gaussian}, {"pissa", Kind::Pissa},
                                                        {"olora", Kind::Olora},       {"loftq", Kind::Loftq}};
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
      .need("true, false, gaussian, pissa, pissa_niter_<number of iterations>, olora or loftq")
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
  check_targets(o);
  if (o.method == AdapterMethod::Prompt &&
      (o.prompt.num_virtual_tokens < 1 || o.prompt.num_virtual_tokens > 65536))
    refuse("bad number of virtual tokens", std::to_string(o.prompt.num_virtual_tokens), "1 to 65536");
  if (o.method == AdapterMethod::Vera) {
    const int64_t key = o.vera.projection_prng_key;
    if (o.vera.rank < 1 || o.vera.rank > (1 << 20))
      refuse("bad VeRA rank", std::to_string(o.vera.rank), "1 to 1048576");
    if (key < 0) refuse("bad projection_prng_key of VeRA", std::to_string(key), "0 or more");
    if (!std::isfinite(o.vera.d_initial)) refuse("bad d_initial of VeRA", "no finite number", "0.1, say");
  }
  if (o.method == AdapterMethod::Lora || o.method == AdapterMethod::Vera) check_dropout(o.dropout);
  if (o.method != AdapterMethod::Lora) return;
  if (o.rank < 1 || o.rank > (1 << 20)) refuse("bad LoRA rank", std::to_string(o.rank), "1 or more");
  if (!std::isfinite(o.alpha) || o.alpha <= 0.0) refuse("bad LoRA alpha", std::to_string(o.alpha), "above 0");
  if (o.use_dora && o.has_bias)
    refuse("DoRA has no bias of its own", "both", "one of use_dora and lora_bias");
  (void)lora_start(o.start);
  check_target_parameters(o);
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
  targets.are_norms = options.method == AdapterMethod::Norms;
  const AdaptedLayers chosen = find_adapted(model, options, untouchable);
  targets.experts = places_of(model, chosen);
  if (options.method == AdapterMethod::Vera) targets.projections = make_projections(chosen, options.vera);
  const LayerOptions options_of(options);
  const auto [table_name, table] = find_token_table(model, options, targets.saved);
  targets.token_table = table_name;
  for (auto& parameter : model.named_parameters()) {
    const std::string& name = parameter.key();
    const size_t dot = name.rfind('.');
    const std::string module = dot == std::string::npos ? "" : name.substr(0, dot);
    const bool trained = std::find(targets.saved.begin(), targets.saved.end(), module) != targets.saved.end();
    parameter.value().set_requires_grad(trained);
  }
  if (table != nullptr) table->set_token_rows(options.trainable_token_indices);
  if (options.method == AdapterMethod::Prompt) {
    const auto [prompt_name, prompt_table] = find_embedding_module(model);
    prompt_table->set_virtual_rows(options.prompt.num_virtual_tokens);
    targets.prompt_table = prompt_name;
    targets.prompt_dim = prompt_table->weight.size(1);
  }
  for (const auto& [name, layer] : chosen) {
    const auto adapter = make_adapter(*layer, name, options, options_of, targets);
    adapter->train(layer->is_training());
    layer->set_adapter(adapter, name);
    targets.adapted.push_back(name);
    // Factors of experts have the same form for both ways of storing.
    const bool is_transposed = layer->is_stored_transposed() && !targets.experts.contains(name);
    targets.fan_in_fan_out = targets.fan_in_fan_out || is_transposed;
  }
  return targets;
}

bool is_lora_parameter(const std::string& name) {
  return std::ranges::any_of(kSuffixes, [&](const char* suffix) { return name.ends_with(suffix); });
}

}  // namespace tessera::peft
