#include "tessera/train/setup/continued_adapter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/peft/carried_parameters.h"
#include "tessera/train/setup/adapter_options.h"

namespace tessera::train {

void attempt_targets(const config::Recipe& recipe, config::Problems& problems,
                     const std::function<void()>& work) {
  try {
    work();
  } catch (Error& error) {
    if (error.kind() != ErrorKind::Config) throw;
    const SourcePlace place =
        error.key().empty()
            ? recipe.place_of({"lora_target_modules", "lora_target_regex", "lora_target_linear", "adapter"})
            : recipe.place_of({error.key()});
    problems.add("adapter", place, error.at(place));
  }
}

namespace {

bool same_names(std::vector<std::string> a, std::vector<std::string> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

std::string describe_layers(const std::vector<std::string>& names) {
  return names.empty() ? "nothing"
                       : join(peft::kinds_of(names), ", ") + " (" + std::to_string(names.size()) + ")";
}

}  // namespace

void check_continued(const config::Recipe& recipe, const models::CausalLM& model,
                     const peft::AdapterConfig& adapter, config::Problems& problems) {
  const auto refuse = [&](const std::string& key, const std::string& got, const std::string& need) {
    const std::string what = "key '" + key + "': the adapter of lora_model_dir has another value";
    problems.add(key, recipe.place_of({key, "adapter"}),
                 recipe.error("LORA-CONTINUED", what, {key, "adapter"})
                     .got(got)
                     .need(need + ", as in " + adapter.source_file)
                     .hint("leave the key out: the adapter's own value applies"));
  };
  const auto hold = [&](const char* key, auto given, auto wanted) {
    if (!recipe.key_places.contains(key) || given == wanted) return;
    refuse(key, nlohmann::json(given).dump(), nlohmann::json(wanted).dump());
  };
  const peft::LoraOptions given = adapter_options(recipe);
  if (given.method != adapter.options.method) {
    refuse("adapter", "another kind of adapter", "that of the file");
    return;
  }
  if (!same_names(given.feedforward_modules, adapter.options.feedforward_modules))
    hold("ia3_feedforward_modules", given.feedforward_modules, adapter.options.feedforward_modules);
  hold("vera_r", given.vera.rank, adapter.options.vera.rank);
  hold("vera_projection_prng_key", given.vera.projection_prng_key, adapter.options.vera.projection_prng_key);
  hold("vera_save_projection", given.vera.save_projection, adapter.options.vera.save_projection);
  hold("num_virtual_tokens", given.prompt.num_virtual_tokens, adapter.options.prompt.num_virtual_tokens);
  hold("lora_r", given.rank, adapter.options.rank);
  hold("lora_alpha", given.alpha, adapter.options.alpha);
  hold("peft_use_rslora", given.use_rslora, adapter.options.use_rslora);
  hold("peft_use_dora", given.use_dora, adapter.options.use_dora);
  hold("lora_bias", given.has_bias, adapter.options.has_bias);
  if (!same_names(given.target_parameters, adapter.options.target_parameters))
    hold("lora_target_parameters", given.target_parameters, adapter.options.target_parameters);
  hold("peft_trainable_token_indices", given.trainable_token_indices,
       adapter.options.trainable_token_indices);
  hold("lora_rank_pattern", given.rank_pattern, adapter.options.rank_pattern);
  hold("lora_alpha_pattern", given.alpha_pattern, adapter.options.alpha_pattern);
  // Targets are compared by the layers that they mean, since PEFT writes names where a recipe says
  // lora_target_linear.
  const bool has_targets = given.all_linear || !given.target_regex.empty() || !given.target_modules.empty();
  const auto has = [&](const char* key) { return recipe.key_places.contains(key); };
  const bool has_saved = has("lora_modules_to_save");
  const bool has_exclusion = has("lora_exclude_modules") || has("lora_exclude_regex");
  const bool has_layers = has("peft_layers_to_transform");
  if (!has_targets && !has_saved && !has_exclusion && !has_layers) return;
  peft::LoraOptions asked = adapter.options;
  if (has_targets) {
    asked.all_linear = given.all_linear;
    asked.target_regex = given.target_regex;
    asked.target_modules = given.target_modules;
  }
  if (has_exclusion) {
    asked.exclude_regex = given.exclude_regex;
    asked.exclude_modules = given.exclude_modules;
  }
  if (has_layers) {
    asked.layers_to_transform = given.layers_to_transform;
    asked.layers_pattern = given.layers_pattern;
  }
  if (has_saved) asked.modules_to_save = given.modules_to_save;
  attempt_targets(recipe, problems, [&] {
    const auto shared = peft::sharing_modules(model.tied_modules());
    const auto found = peft::find_lora_targets(model, asked, shared);
    const auto wanted = peft::find_lora_targets(model, adapter.options, shared);
    if (!same_names(found.saved, wanted.saved)) {
      refuse("lora_modules_to_save", describe_layers(found.saved), describe_layers(wanted.saved));
    } else if (!same_names(found.adapted, wanted.adapted)) {
      refuse(recipe.first_given({"lora_target_modules", "lora_target_regex", "lora_target_linear",
                                 "lora_exclude_modules", "lora_exclude_regex", "peft_layers_to_transform"}),
             describe_layers(found.adapted), describe_layers(wanted.adapted));
    }
  });
}

}  // namespace tessera::train
