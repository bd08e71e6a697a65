#include "tessera/peft/find_targets.h"

#include <algorithm>
#include <set>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/norm.h"
#include "tessera/peft/targets.h"

namespace tessera::peft {
namespace {

// Decides by its name whether a layer gets an adapter, and remembers which wanted names it has met.
class TargetMatcher {
 public:
  explicit TargetMatcher(const LoraOptions& options) : options_(options) {
    if (!options.target_regex.empty()) pattern_ = std::make_unique<NamePattern>(options.target_regex);
    if (!options.exclude_regex.empty()) excluded_ = std::make_unique<NamePattern>(options.exclude_regex);
    // The first number counts, which is that of the block: an expert has one behind it.
    for (const std::string& before : options.layers_pattern)
      numbered_.emplace_back("(?:|.*?\\.)(?:" + before + ")\\.(\\d+)\\.");
    if (numbered_.empty()) numbered_.emplace_back(".*?\\.[^.]*\\.(\\d+)\\.");
  }

  bool matches(const std::string& name, bool takes_adapter) {
    bool found = (options_.all_linear && takes_adapter) || matches_regex(name), is_whole_name = false;
    for (const std::string& wanted : options_.target_modules) {
      if (!is_module_named(name, wanted)) continue;
      met_.insert(wanted);
      found = true;
      is_whole_name = is_whole_name || name == wanted;
    }
    found_any_ = found_any_ || found;
    // A whole name stands for its layer, wherever that is; so it does in PEFT.
    return found && !is_excluded(name) && (is_whole_name || is_in_layer(name));
  }
  // Tells whether a layer was found that may have been left out again.
  bool found_any() const { return found_any_; }

  bool matches_regex(const std::string& name) const { return pattern_ != nullptr && pattern_->matches(name); }

  bool is_excluded(const std::string& name) const {
    if (excluded_ != nullptr && excluded_->matches(name)) return true;
    return std::ranges::any_of(options_.exclude_modules,
                               [&](const std::string& excluded) { return is_module_named(name, excluded); });
  }

  std::vector<std::string> unmet() const {
    std::vector<std::string> names;
    for (const std::string& wanted : options_.target_modules) {
      if (met_.count(wanted) == 0) names.push_back(wanted);
    }
    return names;
  }

 private:
  // Tells whether the layer is in one of the blocks that layers_to_transform lists.
  bool is_in_layer(const std::string& name) const {
    const auto& layers = options_.layers_to_transform;
    if (layers.empty()) return true;
    for (const NamePattern& pattern : numbered_) {
      const std::string number = pattern.first_group(name);
      if (number.empty()) continue;
      return std::ranges::any_of(layers, [&](int64_t layer) { return std::to_string(layer) == number; });
    }
    return false;
  }

  const LoraOptions& options_;
  std::unique_ptr<NamePattern> pattern_, excluded_;
  std::vector<NamePattern> numbered_;  // begin a name up to a block's number, which is their group
  std::set<std::string> met_;
  bool found_any_ = false;
};

// Tells whether an expert's parameter has this name, or one that ends in it.
bool is_met(const std::string& wanted, const ExpertPlaces& places) {
  return std::ranges::any_of(
      places, [&](const auto& item) { return is_module_named(item.second.parameter, wanted); });
}

bool is_target_parameter(const LoraOptions& options, const ExpertPlace& place) {
  return std::ranges::any_of(options.target_parameters, [&](const std::string& wanted) {
    return is_module_named(place.parameter, wanted);
  });
}

// Tells whether the module, or one that it lies in, is named so.
bool is_in_module_named(const std::string& name, const std::string& wanted) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (is_module_named(name.substr(0, dot), wanted)) return true;
  }
  return is_module_named(name, wanted);
}

bool is_saved(const std::string& module_name, const LoraOptions& options) {
  return std::any_of(options.modules_to_save.begin(), options.modules_to_save.end(),
                     [&](const std::string& wanted) { return is_in_module_named(module_name, wanted); });
}

Error no_such_parameter(const LoraOptions& options, const ExpertPlaces& places) {
  std::vector<std::string> names, unmet;
  for (const auto& [layer, place] : places) names.push_back("experts." + last_component(place.parameter));
  for (const std::string& wanted : options.target_parameters) {
    if (!is_met(wanted, places)) unmet.push_back(wanted);
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return Error(ErrorKind::Config, "LORA-TARGET",
               "no parameter of the model's experts is named '" + join(unmet, "', '") + "'")
      .about("lora_target_parameters")
      .need(names.empty() ? "a model with experts that have a gate; lora_target_modules names layers"
                          : join(names, ", "));
}

Error no_such_layer(const LoraOptions& options, const TargetMatcher& matcher, const ExpertPlaces& places,
                    const std::vector<std::string>& linear_names) {
  const std::vector<std::string> unmet = matcher.unmet();
  const bool has_all_parameters = std::ranges::all_of(
      options.target_parameters, [&](const std::string& wanted) { return is_met(wanted, places); });
  if (unmet.empty() && !has_all_parameters) return no_such_parameter(options, places);
  if (unmet.empty() && matcher.found_any()) {
    Error error(ErrorKind::Config, "LORA-TARGET", "all target layers are excluded");
    error.need("a target that exclude_modules and layers_to_transform do not exclude");
    return error;
  }
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
  if (near.empty() && !places.empty())
    error.hint("the experts' weights are those of lora_target_parameters: experts.down_proj");
  if (!near.empty()) error.hint("did you mean " + join(near, ", ") + "?");
  return error;
}

// Refuses an expression that means an embedding or a head that shares its weight: such a part of what it asks
// for would be left out without a word. In a list of names it would match nothing.
void refuse_target(const TargetMatcher& matcher, const std::string& name, const LoraOptions& options,
                   const std::string& why) {
  if (!matcher.matches_regex(name) || matcher.is_excluded(name) || is_saved(name, options)) return;
  throw Error(
      ErrorKind::Config, "LORA-TARGET",
      "the expression for target modules matches '" + name + "', which cannot have an adapter: it " + why)
      .got("'" + options.target_regex + "'")
      .need("an expression for linear layers")
      .hint("lora_target_linear: true selects all of them");
}

// Refuses ends of names that PEFT refuses too, or that no target has.
void check_feedforward(const LoraOptions& options, const AdaptedLayers& chosen) {
  const bool is_list = !options.all_linear && options.target_regex.empty();
  for (const std::string& end : options.feedforward_modules) {
    const bool is_end =
        std::ranges::any_of(chosen, [&](const auto& one) { return one.first.ends_with(end); });
    if (is_end && (!is_list || std::ranges::count(options.target_modules, end) > 0)) continue;
    std::vector<std::string> names;
    for (const auto& [name, layer] : chosen) names.push_back(name);
    throw Error(ErrorKind::Config, "LORA-TARGET", "'" + end + "' of ia3_feedforward_modules is no target")
        .about("ia3_feedforward_modules")
        .need(join(is_list ? options.target_modules : kinds_of(names), ", "));
  }
}

// Finds the norms that the targets name, or all where there are no targets.
std::vector<std::string> find_norms(const torch::nn::Module& model, const LoraOptions& options) {
  TargetMatcher matcher(options);
  const bool takes_all = options.target_modules.empty() && options.target_regex.empty();
  std::vector<std::string> found, all;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (std::dynamic_pointer_cast<nn::Norm>(item.value()) == nullptr) continue;
    all.push_back(item.key());
    const bool is_named = matcher.matches(item.key(), /*takes_adapter=*/false);
    if (is_named || (takes_all && !matcher.is_excluded(item.key()))) found.push_back(item.key());
  }
  const std::vector<std::string> unmet = matcher.unmet();
  if (!found.empty() && unmet.empty()) return found;
  throw Error(ErrorKind::Config, "LORA-TARGET",
              unmet.empty() ? "no norm of the model is chosen"
                            : "no norm of the model is named '" + join(unmet, "', '") + "'")
      .need(join(kinds_of(all), ", "));
}

}  // namespace

std::vector<std::string> find_saved(const torch::nn::Module& model, const LoraOptions& options,
                                    const std::vector<std::string>& untouchable) {
  if (options.method == AdapterMethod::Norms) return find_norms(model, options);
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
    const auto covers = [&](const std::string& name) { return is_in_module_named(name, wanted); };
    if (std::none_of(saved.begin(), saved.end(), covers)) {
      throw Error(ErrorKind::Config, "LORA-TARGET",
                  "'" + wanted + "' of lora_modules_to_save names no module")
          .about("lora_modules_to_save")
          .need(join(kinds_of(all), ", "));
    }
  }
  return saved;
}

AdaptedLayers find_adapted(const torch::nn::Module& model, const LoraOptions& options,
                           const std::vector<std::string>& untouchable) {
  if (options.method == AdapterMethod::Norms || options.method == AdapterMethod::Prompt) return {};
  TargetMatcher matcher(options);
  for (const std::string& name : untouchable)
    refuse_target(matcher, name, options, "shares its weight with another module (tied embeddings)");
  const ExpertPlaces places = find_expert_places(model);
  std::vector<std::string> linear_names;
  AdaptedLayers chosen;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto layer = std::dynamic_pointer_cast<nn::Linear>(item.value());
    if (std::dynamic_pointer_cast<nn::Embedding>(item.value()) != nullptr)
      refuse_target(matcher, item.key(), options, "is an embedding");
    if (layer == nullptr) continue;
    // PEFT sees no layer in one of many in a parameter.
    if (const auto place = places.find(item.key()); place != places.end()) {
      if (is_target_parameter(options, place->second)) chosen.emplace_back(item.key(), layer);
      continue;
    }
    const bool takes_adapter = layer->refusal().empty();
    if (takes_adapter) linear_names.push_back(item.key());
    if (is_saved(item.key(), options)) continue;
    if (matcher.matches(item.key(), takes_adapter)) chosen.emplace_back(item.key(), layer);
  }
  const bool has_all_parameters = std::ranges::all_of(
      options.target_parameters, [&](const std::string& wanted) { return is_met(wanted, places); });
  if (chosen.empty() || !matcher.unmet().empty() || !has_all_parameters)
    throw no_such_layer(options, matcher, places, linear_names);
  check_feedforward(options, chosen);
  return chosen;
}

ExpertPlaces places_of(const torch::nn::Module& model, const AdaptedLayers& layers) {
  ExpertPlaces places, all = find_expert_places(model);
  for (const auto& [name, layer] : layers) {
    if (auto place = all.extract(name)) places.insert(std::move(place));
  }
  return places;
}

std::pair<std::string, std::shared_ptr<nn::Embedding>> find_embedding_module(const torch::nn::Module& model) {
  // The table of positions, if there is one, comes after that of the tokens.
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (const auto table = std::dynamic_pointer_cast<nn::Embedding>(item.value())) return {item.key(), table};
  }
  throw Error(ErrorKind::Config, "LORA-TARGET", "the model has no embedding of tokens");
}

std::pair<std::string, std::shared_ptr<nn::Embedding>> find_token_table(
    const torch::nn::Module& model, const LoraOptions& options, const std::vector<std::string>& saved) {
  const std::vector<int64_t>& ids = options.trainable_token_indices;
  if (ids.empty()) return {};
  const auto error = [](const std::string& what) {
    return Error(ErrorKind::Config, "LORA-TARGET", what).about("peft_trainable_token_indices");
  };
  const auto found = find_embedding_module(model);
  const auto& [name, table] = found;
  if (std::ranges::count(saved, name) > 0)
    throw error("rows of '" + name + "' are to be trained, and all of it (lora_modules_to_save)");
  std::vector<int64_t> sorted = ids;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    throw error("a token stands twice").got(std::to_string(*twice));
  if (sorted.front() < 0 || sorted.back() >= table->weight.size(0)) {
    throw error("the vocabulary has no such token")
        .got(std::to_string(sorted.front() < 0 ? sorted.front() : sorted.back()))
        .need("0 to " + std::to_string(table->weight.size(0) - 1));
  }
  return found;
}

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
  const AdaptedLayers chosen = find_adapted(model, options, untouchable);
  for (const auto& [name, layer] : chosen) targets.adapted.push_back(name);
  targets.experts = places_of(model, chosen);
  targets.token_table = find_token_table(model, options, targets.saved).first;
  return targets;
}

}  // namespace tessera::peft
