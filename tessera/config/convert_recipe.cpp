#include "tessera/config/convert_recipe.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/config/bind.h"
#include "tessera/config/foreign_keys.h"
#include "tessera/config/problems.h"
#include "tessera/config/schema.h"
#include "tessera/config/translate.h"
#include "tessera/config/validate.h"
#include "tessera/config/yaml_reader.h"

namespace tessera::config {
namespace {

bool has_any(const Node& map, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return map.find(key) != nullptr; });
}

// The section that a file's keys are of.
std::string_view section_of(const Node& map) {
  if (has_any(map, {"base_model"})) return "";
  if (has_any(map, {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"}))
    return "deepspeed";
  if (has_any(map, {"model_name_or_path", "per_device_train_batch_size", "num_train_epochs", "dataset_name",
                    "finetuning_type", "lr_scheduler_type"})) {
    return kTrainerSection;
  }
  return "";
}

SourceFile read_file(const std::string& path) {
  Place place;
  place.file = std::make_shared<const std::string>(path);
  SourceFile file{parse_yaml(read_config_file(path), place)};
  if (!file.root.is_map()) {
    throw config_error("TYPE", "a configuration is a map of keys", file.root.place).got(describe(file.root));
  }
  file.root.place.file = place.file;
  file.section = section_of(file.root);
  return file;
}

// The words of a command line, as a shell takes it apart.
std::vector<std::string> shell_words(const std::string& text, const Place& place) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_blank = c == ' ' || c == '\t' || c == '\n';
    if (quote == 0 && is_blank) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
    } else if (quote == 0 && c == '\\' && i + 1 < text.size()) {
      if (text[++i] != '\n') word = word.value_or("") + text[i];
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      word = word.value_or("");
    } else {
      word = word.value_or("") + c;
    }
  }
  if (quote != 0) throw config_error("ARGUMENTS", "the arguments end inside quotes", place);
  if (word) words.push_back(*word);
  return words;
}

// "--key value", "--key=value", "--key a b c" (a list) and "--flag" (true).
SourceFile parse_arguments(const std::string& text) {
  SourceFile file;
  file.section = kTrainerSection;
  Place place;
  place.file = std::make_shared<const std::string>("arguments");
  file.root.kind = Node::Kind::Map;
  file.root.place = place;
  const std::vector<std::string> words = shell_words(text, place);
  const auto is_flag = [](const std::string& word) { return word.size() > 2 && word.starts_with("--"); };
  for (size_t i = 0; i < words.size();) {
    if (!is_flag(words[i])) {
      throw config_error("ARGUMENTS", "'" + words[i] + "' belongs to no argument", place).need("--key value");
    }
    std::string key = words[i++].substr(2);
    std::vector<std::string> values;
    const size_t equals = key.find('=');
    if (equals != std::string::npos) {
      values.push_back(key.substr(equals + 1));
      key.resize(equals);
    }
    while (i < words.size() && !is_flag(words[i])) values.push_back(words[i++]);
    std::replace(key.begin(), key.end(), '-', '_');
    Node value = values.size() == 1 ? parse_yaml(values[0], place) : make_scalar("true", place);
    if (values.size() > 1) {
      value.kind = Node::Kind::Sequence;
      for (const std::string& item : values) value.items.push_back(make_scalar(item, place));
    }
    value.place = place;
    if (file.root.find(key) != nullptr) {
      throw config_error("ARGUMENTS", "the argument --" + key + " is given twice", place);
    }
    file.root.entries.push_back({key, place, std::move(value), ""});
  }
  return file;
}

// What these tools adapt where nothing is said: LLaMA-Factory all linear layers, PEFT the query and value
// projections of the usual models.
void add_default_targets(Node& native, Problems& problems) {
  const Entry* adapter = native.find("adapter");
  if (adapter == nullptr || adapter->value.text != "lora" || adapter->origin.empty()) return;
  for (const char* key :
       {"lora_target_linear", "lora_target_modules", "lora_target_regex", "lora_model_dir"}) {
    if (native.find(key) != nullptr) return;
  }
  const Place place = adapter->key_place;
  const std::string said_by = adapter->origin;
  if (said_by == "finetuning_type") {
    native.entries.push_back({"lora_target_linear", place, make_scalar("true", place), said_by});
    return;
  }
  Node names;
  names.kind = Node::Kind::Sequence;
  names.place = place;
  for (const char* name : {"q_proj", "v_proj"}) names.items.push_back(make_scalar(name, place));
  native.entries.push_back({"lora_target_modules", place, std::move(names), said_by});
  problems.warn("lora_target_modules: q_proj and v_proj, as PEFT chooses for the usual models");
}

}  // namespace

std::string convert_to_recipe(const std::vector<std::string>& files, const std::string& arguments) {
  Problems problems;
  std::vector<SourceFile> sources;
  for (const std::string& file : files) sources.push_back(read_file(file));
  if (!arguments.empty()) sources.push_back(parse_arguments(arguments));
  TESSERA_ASSERT(!sources.empty(), "nothing to convert");
  Node native = translate(sources, "", problems);
  settle_keys(native, problems);
  add_default_targets(native, problems);
  Recipe recipe;
  recipe.source_file = files.empty() ? "arguments" : files.front();
  bind_recipe(native, recipe, problems);
  validate(recipe, problems);
  problems.settle();
  std::string text;
  for (const std::string_view key : required_recipe_keys()) {
    if (native.find(key) == nullptr) text += "# Required: " + std::string(key) + ":\n";
  }
  return text + write_yaml(recipe, KeysToWrite::Given, PlacesToWrite::AsComments);
}

}  // namespace tessera::config
