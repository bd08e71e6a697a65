#include "tessera/config/key_names.h"

#include <algorithm>

#include "tessera/config/schema.h"
#include "tessera/config/translate.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

template <class T>
bool has_key(std::span<const Key<T>> keys, std::string_view name) {
  return std::any_of(keys.begin(), keys.end(), [&](const Key<T>& key) { return key.name == name; });
}

// Says for messages where the keys of a section stand in a recipe.
std::string section_title(std::string_view path) {
  if (path.empty()) return "at the top level";
  if (path == "datasets" || path == "lr_groups") return "in an entry of '" + std::string(path) + "'";
  return "under '" + std::string(path) + "'";
}

std::vector<std::string> names_of(const Section& section, bool with_refused = true) {
  std::vector<std::string> names;
  if (section.path.empty()) {
    for (const auto& key : recipe_keys()) names.emplace_back(key.name);
  } else if (section.path == "datasets") {
    for (const auto& key : dataset_keys()) names.emplace_back(key.name);
  } else if (section.path == "lr_groups") {
    for (const auto& key : lr_group_keys()) names.emplace_back(key.name);
  }
  for (const ForeignKey& key : section.keys) {
    const bool is_left_out = key.rule == Rule::Hint || (key.rule == Rule::Refuse && !with_refused);
    if (!is_left_out && !key.name.ends_with('*')) names.emplace_back(key.name);
  }
  return names;
}

// Returns the other section in which `key` would be right, such as "under 'fsdp_config'"; "" when there is
// none.
std::string other_home(const Section& here, std::string_view key) {
  for (const Key<Recipe>& candidate : recipe_keys()) {
    if (!std::holds_alternative<std::map<std::string, std::string> Recipe::*>(candidate.field)) continue;
    for (const Choice& choice : candidate.choices) {
      if (choice.name == key) return section_title(candidate.name);
    }
  }
  for (const Section& other : sections()) {
    if (&other == &here || other.path == kTrainerSection) continue;
    // DeepSpeed's words are so common that a hint at its sections helps only inside DeepSpeed's own file.
    if (other.path.starts_with("deepspeed") && !here.path.starts_with("deepspeed")) continue;
    const std::vector<std::string> names = names_of(other);
    if (std::find(names.begin(), names.end(), key) != names.end()) return section_title(other.path);
  }
  return "";
}

}  // namespace

bool is_native(const Section& section, std::string_view key) {
  if (section.path.empty()) return has_key(recipe_keys(), key);
  if (section.path == "datasets") return has_key(dataset_keys(), key);
  if (section.path == "lr_groups") return has_key(lr_group_keys(), key);
  return false;
}

std::string_view entries_of(std::string_view key) {
  if (key == "datasets" || key == "test_datasets") return "datasets";
  return key == "lr_groups" ? key : "";
}

Error unknown_key(const Section& section, const Entry& entry, std::string_view name, const std::string& path,
                  const ForeignKey* other_name) {
  Error error = config_error("UNKNOWN-KEY", "unknown key '" + path + "'", entry.key_place);
  if (other_name != nullptr) return error.hint("did you mean '" + std::string(other_name->target) + "'?");
  const std::string home = other_home(section, name);
  if (!home.empty()) return error.hint("'" + entry.key + "' belongs " + home);
  const std::string near = nearest_name(name, names_of(section));
  if (!near.empty()) return error.hint("did you mean '" + near + "'?");
  if (section.path.empty() && find_foreign(config::section(kTrainerSection), name) != nullptr)
    return error.hint(
        "an argument of other trainers: `tessera recipe convert` converts their files into recipes");
  return error.hint("`tessera recipe keys` lists all keys");
}

std::vector<std::string> all_key_paths() {
  std::vector<std::string> paths;
  for (const Section& section : sections()) {
    if (section.path == kTrainerSection) continue;
    std::string prefix(section.path);
    if (prefix == "datasets" || prefix == "lr_groups") prefix += ".0";
    if (!prefix.empty()) prefix += '.';
    for (const std::string& name : names_of(section, /*with_refused=*/false)) paths.push_back(prefix + name);
  }
  for (const Key<Recipe>& key : recipe_keys()) {
    if (!std::holds_alternative<std::map<std::string, std::string> Recipe::*>(key.field)) continue;
    for (const Choice& choice : key.choices)
      paths.push_back(std::string(key.name) + '.' + std::string(choice.name));
  }
  return paths;
}

}  // namespace tessera::config
