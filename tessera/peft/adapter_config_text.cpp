#include "tessera/peft/adapter_config_text.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/whole_model.h"
#include "tessera/peft/ia3.h"

namespace tessera::peft {
namespace {

// PEFT declares alphas as integers, and most files hold them as such.
nlohmann::ordered_json alpha_json(double alpha) {
  if (alpha == std::floor(alpha) && alpha < 1e15) return static_cast<int64_t>(alpha);
  return alpha;
}

// Returns the options of the adapter that the files hold: with factors of the start in them, a plain one of
// twice the rank and the same scaling, as PEFT makes it too (subtract_mutated_init).
LoraOptions stored_options(LoraOptions options) {
  if (!lora_start(options.start).takes_from_base()) return options;
  const double growth = options.use_rslora ? std::sqrt(2.0) : 2.0;
  options.rank *= 2;
  options.alpha *= growth;
  for (auto& [name, rank] : options.rank_pattern) rank *= 2;
  for (auto& [name, alpha] : options.alpha_pattern) alpha *= growth;
  options.start = "true";
  return options;
}

// Returns what every kind of adapter says. Keys stand in the order of the alphabet.
nlohmann::ordered_json common_json(const LoraOptions& options, const LoraTargets& targets,
                                   const std::string& base_model, nlohmann::json sorted) {
  nlohmann::json task = options.is_of_tokens       ? "TOKEN_CLS"
                        : options.is_of_classifier ? "SEQ_CLS"
                        : options.is_seq2seq       ? "SEQ_2_SEQ_LM"
                                                   : "CAUSAL_LM";
  if (options.is_masked_lm) task = nullptr;
  sorted.update({
      {"task_type", task},
      {"base_model_name_or_path", base_model},
      {"inference_mode", true},
      {"exclude_modules", nullptr},
      {"modules_to_save", nullptr},
      {"auto_mapping", nullptr},
      {"revision", nullptr},
  });
  if (!options.modules_to_save.empty()) sorted["modules_to_save"] = options.modules_to_save;
  if (!options.exclude_modules.empty()) sorted["exclude_modules"] = options.exclude_modules;
  if (!options.exclude_regex.empty()) sorted["exclude_modules"] = options.exclude_regex;
  std::vector<std::string> adapted;
  for (const std::string& layer : targets.adapted) {
    if (!targets.experts.contains(layer)) adapted.push_back(layer);
  }
  if (options.all_linear) {
    sorted["target_modules"] = kinds_of(adapted);
  } else if (!options.target_regex.empty()) {
    sorted["target_modules"] = options.target_regex;
  } else if (options.target_modules.empty() && options.method == AdapterMethod::Norms) {
    sorted["target_modules"] = kinds_of(targets.saved);  // all norms
  } else {
    sorted["target_modules"] = options.target_modules;
  }
  // Short names would also be those of layers of the whole model that do not belong to its text part.
  const std::vector<std::string>& layers = targets.adapted.empty() ? targets.saved : adapted;
  // A short name may also be that of a layer in the head of a task.
  const bool is_exact = (options.is_of_classifier || options.is_masked_lm) && options.all_linear;
  if (!layers.empty() && (is_exact || checkpoint::is_in_text_body(layers.front())))
    sorted["target_modules"] = layers;
  return nlohmann::ordered_json::parse(sorted.dump());
}

void put_layers(nlohmann::ordered_json& json, const LoraOptions& options) {
  if (!options.layers_to_transform.empty()) json["layers_to_transform"] = options.layers_to_transform;
  if (!options.layers_pattern.empty()) json["layers_pattern"] = options.layers_pattern;
}

nlohmann::ordered_json lora_json(const LoraOptions& trained, const LoraTargets& targets,
                                 const std::string& base_model) {
  const LoraOptions options = stored_options(trained);
  auto json = common_json(options, targets, base_model,
                          {
                              {"peft_type", "LORA"},
                              {"r", options.rank},
                              {"lora_alpha", nullptr},
                              {"lora_dropout", options.dropout},
                              {"use_rslora", options.use_rslora},
                              {"bias", "none"},
                              {"fan_in_fan_out", targets.fan_in_fan_out},
                              {"init_lora_weights", true},
                              {"use_dora", options.use_dora},
                              {"lora_bias", options.has_bias},
                              {"rank_pattern", nlohmann::json::object()},
                              {"alpha_pattern", nlohmann::json::object()},
                              {"layers_to_transform", nullptr},
                              {"layers_pattern", nullptr},
                              {"target_parameters", nullptr},
                              {"trainable_token_indices", nullptr},
                          });
  json["lora_alpha"] = alpha_json(options.alpha);
  if (options.start == "false") json["init_lora_weights"] = false;
  if (options.start == "gaussian") json["init_lora_weights"] = options.start;
  put_layers(json, options);
  if (!options.target_parameters.empty()) json["target_parameters"] = options.target_parameters;
  if (!options.trainable_token_indices.empty())
    json["trainable_token_indices"] = options.trainable_token_indices;
  // The keys of a pattern stand in the order in which they count.
  for (const auto& [name, rank] : options.rank_pattern) json["rank_pattern"][name] = rank;
  for (const auto& [name, alpha] : options.alpha_pattern) json["alpha_pattern"][name] = alpha_json(alpha);
  return json;
}

// PEFT wants each of feedforward_modules among the targets, and ends of names are none.
nlohmann::ordered_json ia3_json(const LoraOptions& options, const LoraTargets& targets,
                                const std::string& base_model) {
  auto json = common_json(options, targets, base_model,
                          {{"peft_type", "IA3"},
                           {"feedforward_modules", options.feedforward_modules},
                           {"fan_in_fan_out", targets.fan_in_fan_out},
                           {"init_ia3_weights", true}});
  if (!options.all_linear || options.feedforward_modules.empty()) return json;
  std::vector<std::string> of_inputs, of_outputs;
  for (const std::string& name : targets.adapted)
    (multiplies_inputs(options, name) ? of_inputs : of_outputs).push_back(name);
  const std::vector<std::string> kinds = kinds_of(of_inputs), others = kinds_of(of_outputs);
  const bool are_apart = std::ranges::none_of(
      kinds, [&](const std::string& kind) { return std::ranges::count(others, kind) > 0; });
  if (are_apart) of_inputs = kinds;
  std::vector<std::string> all = are_apart ? others : of_outputs;
  all.insert(all.end(), of_inputs.begin(), of_inputs.end());
  json["feedforward_modules"] = of_inputs;
  json["target_modules"] = all;
  return json;
}

// The text that the rows began with says nothing of their values, and PEFT would ask for its tokenizer.
nlohmann::ordered_json prompt_json(const LoraOptions& options, const LoraTargets& targets,
                                   const std::string& base_model) {
  const nlohmann::json sorted = {{"peft_type", "PROMPT_TUNING"},
                                 {"task_type", "CAUSAL_LM"},
                                 {"base_model_name_or_path", base_model},
                                 {"inference_mode", true},
                                 {"auto_mapping", nullptr},
                                 {"revision", nullptr},
                                 {"num_virtual_tokens", options.prompt.num_virtual_tokens},
                                 {"token_dim", targets.prompt_dim},
                                 {"num_transformer_submodules", 1},
                                 {"num_attention_heads", nullptr},
                                 {"num_layers", nullptr},
                                 {"prompt_tuning_init", "RANDOM"},
                                 {"prompt_tuning_init_text", nullptr},
                                 {"tokenizer_name_or_path", nullptr}};
  return nlohmann::ordered_json::parse(sorted.dump());
}

// PEFT's configuration of VeRA knows no exclusions: where there are some, the layers are named in full.
nlohmann::ordered_json vera_json(const LoraOptions& options, const LoraTargets& targets,
                                 const std::string& base_model) {
  auto json = common_json(options, targets, base_model,
                          {{"peft_type", "VERA"},
                           {"r", options.vera.rank},
                           {"d_initial", options.vera.d_initial},
                           {"projection_prng_key", options.vera.projection_prng_key},
                           {"save_projection", options.vera.save_projection},
                           {"vera_dropout", options.dropout},
                           {"bias", "none"},
                           {"fan_in_fan_out", targets.fan_in_fan_out},
                           {"init_weights", true},
                           {"layers_to_transform", nullptr},
                           {"layers_pattern", nullptr}});
  json.erase("exclude_modules");
  if (!options.exclude_modules.empty() || !options.exclude_regex.empty()) {
    json["target_modules"] = targets.adapted;
    return json;
  }
  put_layers(json, options);
  return json;
}

}  // namespace

std::string adapter_config_text(const LoraOptions& options, const LoraTargets& targets,
                                const std::string& base_model) {
  nlohmann::ordered_json json;
  switch (options.method) {
    case AdapterMethod::Lora: json = lora_json(options, targets, base_model); break;
    case AdapterMethod::Ia3: json = ia3_json(options, targets, base_model); break;
    case AdapterMethod::Vera: json = vera_json(options, targets, base_model); break;
    case AdapterMethod::Prompt: json = prompt_json(options, targets, base_model); break;
    case AdapterMethod::Norms:
      json = common_json(options, targets, base_model, {{"peft_type", "LN_TUNING"}});
      break;
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::peft
