// Rules of the keys of adapters.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config/rules.h"
#include "tessera/config/scalar.h"

namespace tessera::config {
namespace {

using GivenKeys = std::vector<std::pair<const char*, bool>>;

// The keys of low-rank products, and whether they differ from their defaults.
GivenKeys product_keys(const Recipe& recipe) {
  const Recipe defaults;
  return {{"lora_r", recipe.lora_r != defaults.lora_r},
          {"lora_alpha", recipe.lora_alpha != defaults.lora_alpha},
          {"lora_rank_pattern", !recipe.lora_rank_pattern.empty()},
          {"lora_alpha_pattern", !recipe.lora_alpha_pattern.empty()},
          {"peft_use_rslora", recipe.peft_use_rslora},
          {"peft_use_dora", recipe.peft_use_dora},
          {"lora_bias", recipe.lora_bias},
          {"lora_target_parameters", !recipe.lora_target_parameters.empty()},
          {"peft_init_lora_weights", recipe.peft_init_lora_weights != defaults.peft_init_lora_weights},
          {"peft_trainable_token_indices", !recipe.peft_trainable_token_indices.empty()},
          {"loraplus_lr_ratio", recipe.loraplus_lr_ratio > 0.0}};
}

// The keys of VeRA alone.
GivenKeys vera_keys(const Recipe& recipe) {
  const Recipe defaults;
  return {{"vera_r", recipe.vera_r != defaults.vera_r},
          {"vera_d_initial", recipe.vera_d_initial != defaults.vera_d_initial},
          {"vera_projection_prng_key", recipe.vera_projection_prng_key != defaults.vera_projection_prng_key},
          {"vera_save_projection", !recipe.vera_save_projection}};
}

// The keys of prompt tuning alone.
GivenKeys prompt_keys(const Recipe& recipe) {
  const Recipe defaults;
  return {{"num_virtual_tokens", recipe.num_virtual_tokens != defaults.num_virtual_tokens},
          {"prompt_tuning_init", recipe.prompt_tuning_init != defaults.prompt_tuning_init},
          {"prompt_tuning_init_text", !recipe.prompt_tuning_init_text.empty()}};
}

// The keys that choose the layers of an adapter.
GivenKeys target_keys(const Recipe& recipe) {
  return {{"lora_target_modules", !recipe.lora_target_modules.empty()},
          {"lora_target_regex", !recipe.lora_target_regex.empty()},
          {"lora_target_linear", recipe.lora_target_linear},
          {"lora_exclude_modules", !recipe.lora_exclude_modules.empty()},
          {"lora_exclude_regex", !recipe.lora_exclude_regex.empty()},
          {"peft_layers_to_transform", !recipe.peft_layers_to_transform.empty()},
          {"peft_layers_pattern", !recipe.peft_layers_pattern.empty()},
          {"lora_modules_to_save", !recipe.lora_modules_to_save.empty()},
          {"lora_model_dir", !recipe.lora_model_dir.empty()}};
}

void warn_idle(Rules& rules, const GivenKeys& keys, const std::string& why) {
  for (const auto& [key, is_changed] : keys) {
    if (is_changed) rules.warn_idle(key, why);
  }
}

const char* kind_name(AdapterKind kind) {
  switch (kind) {
    case AdapterKind::Ia3: return "ia3";
    case AdapterKind::LnTuning: return "ln_tuning";
    case AdapterKind::Vera: return "vera";
    case AdapterKind::PromptTuning: return "prompt_tuning";
    default: return "lora";
  }
}

// Warns of keys that only other kinds of adapters read.
void warn_of_other_kinds(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const AdapterKind kind = recipe.adapter;
  const std::string with = std::string("with 'adapter: ") + kind_name(kind) + "'";
  if (kind != AdapterKind::Lora) warn_idle(rules, product_keys(recipe), with);
  if (kind != AdapterKind::Lora && kind != AdapterKind::Vera && recipe.lora_dropout > 0.0)
    rules.warn_idle("lora_dropout", with);
  if (kind != AdapterKind::Ia3 && !recipe.ia3_feedforward_modules.empty())
    rules.warn_idle("ia3_feedforward_modules", "without 'adapter: ia3'");
  if (kind != AdapterKind::Vera) warn_idle(rules, vera_keys(recipe), "without 'adapter: vera'");
  if (kind != AdapterKind::PromptTuning)
    warn_idle(rules, prompt_keys(recipe), "without 'adapter: prompt_tuning'");
  if (kind == AdapterKind::LnTuning && recipe.lora_target_linear) rules.warn_idle("lora_target_linear", with);
}

// Refuses keys that PEFT's configuration of some kinds of adapters has no place for.
void refuse_foreign_choices(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const std::string kind = std::string("adapter: ") + kind_name(recipe.adapter);
  const auto refuse = [&](const char* key, const char* hint) {
    rules
        .refuse_text("CONFLICT", {key, "adapter"},
                     "keys '" + std::string(key) + "' and '" + kind + "' exclude each other")
        .hint(hint);
  };
  const bool is_norms = recipe.adapter == AdapterKind::LnTuning;
  if ((is_norms || recipe.adapter == AdapterKind::Ia3) && !recipe.peft_layers_to_transform.empty())
    refuse("peft_layers_to_transform", "lora_target_modules as an expression can choose blocks too");
  if (recipe.adapter == AdapterKind::PromptTuning) {
    for (const auto& [key, is_given] : target_keys(recipe)) {
      if (is_given && std::string(key) != "lora_model_dir")
        refuse(key, "a prompt stands before the tokens and adapts no layer");
    }
    if (recipe.prompt_tuning_init == "text" && recipe.prompt_tuning_init_text.empty() &&
        recipe.lora_model_dir.empty())
      rules.refuse("MISSING", {"prompt_tuning_init_text", "prompt_tuning_init"}, "no text to begin with")
          .need("prompt_tuning_init_text, or prompt_tuning_init: random");
  }
  if (is_norms && !recipe.lora_modules_to_save.empty())
    refuse("lora_modules_to_save", "adapter: lora trains whole modules beside its own");
}

void validate_targets(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.adapter == AdapterKind::PromptTuning) return;
  const bool has_parameters = recipe.adapter == AdapterKind::Lora && !recipe.lora_target_parameters.empty();
  if (!recipe.lora_target_linear && recipe.lora_target_modules.empty() && recipe.lora_target_regex.empty() &&
      !has_parameters && recipe.lora_model_dir.empty() && recipe.adapter != AdapterKind::LnTuning) {
    rules
        .refuse("MISSING",
                {"adapter", "lora_target_linear", "lora_target_modules", "lora_target_regex",
                 "lora_target_parameters"},
                std::string(kind_name(recipe.adapter)) + " has no layers to adapt")
        .need("lora_target_linear: true or lora_target_modules");
  }
  if (has_parameters) {
    const std::pair<const char*, bool> others[] = {
        {"lora_dropout", recipe.lora_dropout > 0.0},
        {"peft_use_dora", recipe.peft_use_dora},
        {"lora_bias", recipe.lora_bias},
        {"peft_init_lora_weights", recipe.peft_init_lora_weights.starts_with("pissa") ||
                                       recipe.peft_init_lora_weights == "olora" ||
                                       recipe.peft_init_lora_weights == "loftq"}};
    for (const auto& [key, is_given] : others) {
      if (!is_given) continue;
      rules
          .refuse_text("CONFLICT", {key, "lora_target_parameters"},
                       "keys '" + std::string(key) + "' and 'lora_target_parameters' exclude each other")
          .hint("PEFT adds the factors of experts to their weights, and has no more for them");
    }
  }
  if (!recipe.peft_layers_to_transform.empty() && !recipe.lora_target_regex.empty()) {
    rules
        .refuse_text("CONFLICT", {"peft_layers_to_transform", "lora_target_regex"},
                     "keys 'peft_layers_to_transform' and 'lora_target_regex' exclude each other")
        .hint("the expression itself can select layers: .*layers[.][01][.].*_proj");
  }
  if (!recipe.peft_layers_pattern.empty() && recipe.peft_layers_to_transform.empty())
    rules.warn_idle("peft_layers_pattern", "without 'peft_layers_to_transform'");
}

// Refuses what restarts of an adapter (ReLoRA) cannot be with.
void validate_restarts(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.relora) {
    if (recipe.relora_prune_ratio != Recipe().relora_prune_ratio)
      rules.warn_idle("relora_prune_ratio", "without 'relora'");
    return;
  }
  if (recipe.adapter != AdapterKind::Lora) {
    rules.refuse("CONFLICT", {"relora", "adapter"}, "restarts add low-rank products to the base")
        .need("adapter: lora");
    return;
  }
  if (recipe.jagged_restart_steps == 0)
    rules.refuse("MISSING", {"relora"}, "no restart is due").need("jagged_restart_steps");
  const std::pair<const char*, const char*> conflicts[] = {
      {recipe.load_in_4bit ? "load_in_4bit" : "", "codes would have to be made anew at each restart"},
      {recipe.load_in_8bit ? "load_in_8bit" : "", "codes would have to be made anew at each restart"},
      {recipe.peft_use_dora ? "peft_use_dora" : "", "restarts add plain products of two factors"},
      {recipe.lora_bias ? "lora_bias" : "", "restarts add plain products of two factors"},
      {recipe.lora_target_parameters.empty() ? "" : "lora_target_parameters",
       "restarts add to the weights of linear layers"},
      {recipe.expert_parallel_size > 1 ? "expert_parallel_size" : "",
       "restarts do not reach experts of other ranks"},
      {recipe.peft_trainable_token_indices.empty() ? "" : "peft_trainable_token_indices",
       "the result is a whole model, and its rows have two owners"},
      {recipe.peft_init_lora_weights == "true" ? "" : "peft_init_lora_weights",
       "each restart draws A and sets B to zero"},
      {recipe.optimizer == OptimizerKind::AdamW ? "" : "optimizer",
       "restarts prune the two moments of AdamW"},
      {recipe.dtype == ComputeType::Float16 ? "dtype" : "",
       "steps without an update would move restarts and the schedule apart"}};
  for (const auto& [key, why] : conflicts) {
    if (*key == '\0') continue;
    rules.refuse_text("CONFLICT", {"relora", key}, "keys 'relora' and '" + std::string(key) + "': " + why);
  }
}

}  // namespace

void validate_adapter(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  validate_restarts(rules);
  if (recipe.adapter == AdapterKind::None) {
    warn_idle(rules, product_keys(recipe), "without 'adapter: lora'");
    warn_idle(rules, target_keys(recipe), "without 'adapter: lora'");
    if (recipe.lora_dropout > 0.0) rules.warn_idle("lora_dropout", "without 'adapter: lora'");
    if (!recipe.ia3_feedforward_modules.empty())
      rules.warn_idle("ia3_feedforward_modules", "without 'adapter: ia3'");
    warn_idle(rules, vera_keys(recipe), "without 'adapter: vera'");
    warn_idle(rules, prompt_keys(recipe), "without 'adapter: prompt_tuning'");
    return;
  }
  warn_of_other_kinds(rules);
  refuse_foreign_choices(rules);
  validate_targets(rules);
  if (!recipe.unfrozen_parameters.empty()) {
    rules
        .refuse_text("CONFLICT", {"unfrozen_parameters", "adapter"},
                     "keys 'unfrozen_parameters' and 'adapter' exclude each other")
        .hint("with an adapter all weights are frozen; lora_modules_to_save trains whole modules");
  }
  constexpr std::string_view kFast = "pissa_niter_";
  if (recipe.peft_init_lora_weights.starts_with(kFast)) {
    const auto iterations = parse_integer(recipe.peft_init_lora_weights.substr(kFast.size()));
    if (iterations.status != IntegerStatus::Ok || iterations.value < 1 || iterations.value > 1000) {
      rules.refuse("VALUE", {"peft_init_lora_weights"}, "no number of iterations")
          .got(recipe.peft_init_lora_weights)
          .need("pissa_niter_<1 to 1000>");
    }
  }
  if (recipe.peft_init_lora_weights == "loftq" && !recipe.quantizes()) {
    rules.refuse("CONFLICT", {"peft_init_lora_weights", "load_in_4bit"}, "LoftQ corrects a quantised base")
        .got("loftq")
        .need("adapter: qlora, load_in_4bit or load_in_8bit");
  }
  if (recipe.peft_use_dora && recipe.lora_bias) {
    rules
        .refuse_text("CONFLICT", {"lora_bias", "peft_use_dora"},
                     "keys 'lora_bias' and 'peft_use_dora' exclude each other")
        .hint("PEFT has no bias in DoRA either");
  }
}

}  // namespace tessera::config
