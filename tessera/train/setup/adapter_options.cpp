#include "tessera/train/setup/adapter_options.h"

#include <string>
#include <string_view>

namespace tessera::train {
namespace {

// Calls f(key, option) for each LoRA key and the option that it stands for.
template <class Keys, class Options, class F>
void for_each_lora_key(Keys& keys, Options& options, const F& f) {
  f(keys.lora_r, options.rank);
  f(keys.lora_alpha, options.alpha);
  f(keys.lora_dropout, options.dropout);
  f(keys.peft_use_rslora, options.use_rslora);
  f(keys.peft_use_dora, options.use_dora);
  f(keys.lora_bias, options.has_bias);
  f(keys.peft_init_lora_weights, options.start);
  f(keys.peft_trainable_token_indices, options.trainable_token_indices);
  f(keys.ia3_feedforward_modules, options.feedforward_modules);
  f(keys.vera_r, options.vera.rank);
  f(keys.vera_d_initial, options.vera.d_initial);
  f(keys.vera_projection_prng_key, options.vera.projection_prng_key);
  f(keys.vera_save_projection, options.vera.save_projection);
  f(keys.num_virtual_tokens, options.prompt.num_virtual_tokens);
  f(keys.prompt_tuning_init_text, options.prompt.init_text);
  f(keys.lora_target_linear, options.all_linear);
  f(keys.lora_target_regex, options.target_regex);
  f(keys.lora_target_modules, options.target_modules);
  f(keys.lora_target_parameters, options.target_parameters);
  f(keys.lora_exclude_regex, options.exclude_regex);
  f(keys.lora_exclude_modules, options.exclude_modules);
  f(keys.peft_layers_to_transform, options.layers_to_transform);
  f(keys.peft_layers_pattern, options.layers_pattern);
  f(keys.lora_rank_pattern, options.rank_pattern);
  f(keys.lora_alpha_pattern, options.alpha_pattern);
  f(keys.lora_modules_to_save, options.modules_to_save);
}

}  // namespace

peft::LoraOptions lora_options(const config::LoraConfig& keys) {
  peft::LoraOptions options;
  for_each_lora_key(keys, options, [](const auto& key, auto& option) { option = key; });
  // Torch's name for a module whose activations are recomputed, which recipes for FSDP have in their names.
  constexpr std::string_view kWrapper = "._checkpoint_wrapped_module";
  for (std::string& name : options.target_parameters) {
    if (const size_t at = name.find(kWrapper); at != std::string::npos) name.erase(at, kWrapper.size());
  }
  return options;
}

peft::LoraOptions adapter_options(const config::Recipe& recipe) {
  peft::LoraOptions options = lora_options(recipe);
  options.is_of_classifier = config::has_classifier(recipe.task);
  options.is_of_tokens = recipe.task == config::Task::TokenClassification;
  options.is_seq2seq = recipe.task == config::Task::Seq2Seq;
  options.is_masked_lm = recipe.task == config::Task::MaskedLm;
  if (recipe.adapter == config::AdapterKind::Ia3) options.method = peft::AdapterMethod::Ia3;
  if (recipe.adapter == config::AdapterKind::LnTuning) options.method = peft::AdapterMethod::Norms;
  if (recipe.adapter == config::AdapterKind::Vera) options.method = peft::AdapterMethod::Vera;
  if (recipe.adapter == config::AdapterKind::PromptTuning) options.method = peft::AdapterMethod::Prompt;
  if (recipe.prompt_tuning_init != "text") options.prompt.init_text.clear();
  if (options.method == peft::AdapterMethod::Norms) options.all_linear = false;
  if (options.method != peft::AdapterMethod::Lora) {
    // Keys without effect, of which the recipe's check has warned.
    const peft::LoraOptions defaults;
    options.use_dora = defaults.use_dora;
    options.has_bias = defaults.has_bias;
    options.start = defaults.start;
    options.trainable_token_indices.clear();
    options.target_parameters.clear();
  }
  return options;
}

config::Recipe with_lora_options(config::Recipe recipe, const peft::LoraOptions& options) {
  for_each_lora_key(recipe, options, [](auto& key, const auto& option) { key = option; });
  return recipe;
}

}  // namespace tessera::train
