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

void attempt_targets(const config::KeyPlaces& places, config::Problems& problems,
                     const std::function<void()>& work) {
  try {
    work();
  } catch (Error& error) {
    if (error.kind() != ErrorKind::Config) throw;
    const SourcePlace place =
        error.key().empty()
            ? places.place_of({"lora_target_modules", "lora_target_regex", "lora_target_linear", "adapter"})
            : places.place_of({error.key()});
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

// Compares the keys of a recipe with the adapter that it continues.
class ContinuedKeys {
 public:
  ContinuedKeys(const config::Recipe& recipe, const peft::AdapterConfig& adapter, config::Problems& problems)
      : recipe_(recipe), adapter_(adapter), given_(adapter_options(recipe)), problems_(problems) {}

  // Returns whether both are adapters of one kind.
  bool check_kind() {
    if (given_.method == adapter_.options.method) return true;
    refuse("adapter", "another kind of adapter", "that of the file");
    return false;
  }

  void check_values() {
    const peft::LoraOptions &given = given_, &wanted = adapter_.options;
    if (!same_names(given.feedforward_modules, wanted.feedforward_modules))
      hold("ia3_feedforward_modules", given.feedforward_modules, wanted.feedforward_modules);
    hold("vera_r", given.vera.rank, wanted.vera.rank);
    hold("vera_projection_prng_key", given.vera.projection_prng_key, wanted.vera.projection_prng_key);
    hold("vera_save_projection", given.vera.save_projection, wanted.vera.save_projection);
    hold("num_virtual_tokens", given.prompt.num_virtual_tokens, wanted.prompt.num_virtual_tokens);
    hold("lora_r", given.rank, wanted.rank);
    hold("lora_alpha", given.alpha, wanted.alpha);
    hold("peft_use_rslora", given.use_rslora, wanted.use_rslora);
    hold("peft_use_dora", given.use_dora, wanted.use_dora);
    hold("lora_bias", given.has_bias, wanted.has_bias);
    if (!same_names(given.target_parameters, wanted.target_parameters))
      hold("lora_target_parameters", given.target_parameters, wanted.target_parameters);
    hold("peft_trainable_token_indices", given.trainable_token_indices, wanted.trainable_token_indices);
    hold("lora_rank_pattern", given.rank_pattern, wanted.rank_pattern);
    hold("lora_alpha_pattern", given.alpha_pattern, wanted.alpha_pattern);
  }

  // Compares targets by the layers that they mean, since PEFT writes names where a recipe says
  // lora_target_linear.
  void check_targets(const models::CausalLM& model) {
    const std::optional<peft::LoraOptions> asked = asked_targets();
    if (!asked) return;
    attempt_targets(recipe_, problems_, [&] {
      const auto shared = peft::sharing_modules(model.tied_modules());
      const auto found = peft::find_lora_targets(model, *asked, shared);
      const auto wanted = peft::find_lora_targets(model, adapter_.options, shared);
      if (!same_names(found.saved, wanted.saved)) {
        refuse("lora_modules_to_save", describe_layers(found.saved), describe_layers(wanted.saved));
      } else if (!same_names(found.adapted, wanted.adapted)) {
        refuse(
            recipe_.first_given({"lora_target_modules", "lora_target_regex", "lora_target_linear",
                                 "lora_exclude_modules", "lora_exclude_regex", "peft_layers_to_transform"}),
            describe_layers(found.adapted), describe_layers(wanted.adapted));
      }
    });
  }

 private:
  bool has(const char* key) const { return recipe_.key_places.contains(key); }

  // Returns the adapter's options with the targets that the recipe gives; nothing if it gives none.
  std::optional<peft::LoraOptions> asked_targets() const {
    const bool has_targets =
        given_.all_linear || !given_.target_regex.empty() || !given_.target_modules.empty();
    const bool has_saved = has("lora_modules_to_save");
    const bool has_exclusion = has("lora_exclude_modules") || has("lora_exclude_regex");
    const bool has_layers = has("peft_layers_to_transform");
    if (!has_targets && !has_saved && !has_exclusion && !has_layers) return std::nullopt;
    peft::LoraOptions asked = adapter_.options;
    if (has_targets) {
      asked.all_linear = given_.all_linear;
      asked.target_regex = given_.target_regex;
      asked.target_modules = given_.target_modules;
    }
    if (has_exclusion) {
      asked.exclude_regex = given_.exclude_regex;
      asked.exclude_modules = given_.exclude_modules;
    }
    if (has_layers) {
      asked.layers_to_transform = given_.layers_to_transform;
      asked.layers_pattern = given_.layers_pattern;
    }
    if (has_saved) asked.modules_to_save = given_.modules_to_save;
    return asked;
  }

  void refuse(const std::string& key, const std::string& got, const std::string& need) {
    const std::string what = "key '" + key + "': the adapter of lora_model_dir has another value";
    problems_.add(key, recipe_.place_of({key, "adapter"}),
                  recipe_.error("LORA-CONTINUED", what, {key, "adapter"})
                      .got(got)
                      .need(need + ", as in " + adapter_.source_file)
                      .hint("leave the key out: the adapter's own value applies"));
  }
  template <class T>
  void hold(const char* key, const T& given, const T& wanted) {
    if (!has(key) || given == wanted) return;
    refuse(key, nlohmann::json(given).dump(), nlohmann::json(wanted).dump());
  }

  const config::Recipe& recipe_;
  const peft::AdapterConfig& adapter_;
  peft::LoraOptions given_;
  config::Problems& problems_;
};

}  // namespace

void check_continued(const config::Recipe& recipe, const models::CausalLM& model,
                     const peft::AdapterConfig& adapter, config::Problems& problems) {
  ContinuedKeys keys(recipe, adapter, problems);
  if (!keys.check_kind()) return;
  keys.check_values();
  keys.check_targets(model);
}

}  // namespace tessera::train
