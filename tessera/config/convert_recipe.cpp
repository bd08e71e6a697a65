#include "tessera/config/convert_recipe.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/config/bind.h"
#include "tessera/config/foreign_keys.h"
#include "tessera/config/key_names.h"
#include "tessera/config/problems.h"
#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/config/settle_keys.h"
#include "tessera/config/translate.h"
#include "tessera/config/validate.h"
#include "tessera/config/yaml_reader.h"

namespace tessera::config {
namespace {

// Returns the section ("" for a recipe, DeepSpeed or the trainers) that knows most of the file's keys.
std::string_view section_of(const Node& map) {
  std::string_view best;
  int64_t most = 0;
  for (const std::string_view path : {std::string_view(""), std::string_view("deepspeed"), kTrainerSection}) {
    const Section& candidate = section(path);
    const int64_t known = std::count_if(map.entries.begin(), map.entries.end(), [&](const Entry& entry) {
      const ForeignKey* key = find_foreign(candidate, entry.key);
      return is_native(candidate, entry.key) || (key != nullptr && key->rule != Rule::Hint);
    });
    if (known <= most) continue;
    most = known;
    best = path;
  }
  return best;
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

// Splits a command line into words, as a shell does.
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
  if (quote != 0) throw config_error("ARGUMENTS", "a quotation mark in the arguments is not closed", place);
  if (word) words.push_back(*word);
  return words;
}

// Parses lists and maps as JSON; any other text is a word.
Node argument_value(const std::string& text, const Place& place) {
  const bool is_word = !text.empty() && text[0] != '[' && text[0] != '{' && text != "null" && text != "None";
  return is_word ? make_scalar(text, place) : parse_yaml(text == "None" ? "null" : text, place);
}

// Reads "--key value", "--key=value", "--key a b c" (a list) and "--flag" (true).
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
    Node value = values.size() == 1 ? argument_value(values[0], place) : make_scalar("true", place);
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

// A tool whose arguments a file may hold, and those of its defaults that differ from Tessera's.
struct Tool {
  const char* name;
  std::vector<std::string_view> marks;  // arguments that only this tool has
  std::vector<std::pair<const char*, const char*>> defaults, adapter_defaults;
};

const std::vector<std::pair<const char*, const char*>> kTrainerDefaults = {
    {"num_epochs", "3.0"}, {"micro_batch_size", "8"}, {"lr_scheduler", "linear"}, {"learning_rate", "5e-5"}};
const Tool kTools[] = {
    {"LLaMA-Factory",
     {"finetuning_type", "stage", "template", "cutoff_len", "dataset_dir", "lora_target", "lora_rank"},
     {{"sequence_len", "2048"}, {"excess_length_strategy", "truncate"}},
     {{"lora_r", "8"}, {"lora_dropout", "0.0"}}},
    {"TRL",
     {"dataset_name", "use_peft", "max_length", "dataset_text_field", "assistant_only_loss",
      "completion_only_loss"},
     {{"learning_rate", "2e-5"},
      {"sequence_len", "1024"},
      {"excess_length_strategy", "truncate"},
      {"gradient_checkpointing", "true"}},
     {{"lora_r", "16"}, {"lora_alpha", "32"}, {"lora_dropout", "0.05"}}},
    {"Transformers", {}, {}, {}},
};

// Returns the tool whose arguments the files hold: the first with a mark among them, else Transformers; null
// when no file holds arguments.
const Tool* tool_of(const std::vector<SourceFile>& files) {
  const bool has_arguments = std::any_of(
      files.begin(), files.end(), [](const SourceFile& file) { return file.section == kTrainerSection; });
  if (!has_arguments) return nullptr;
  return &*std::find_if(std::begin(kTools), std::end(kTools), [&](const Tool& tool) {
    return tool.marks.empty() || std::any_of(files.begin(), files.end(), [&](const SourceFile& file) {
             return file.section == kTrainerSection &&
                    std::any_of(tool.marks.begin(), tool.marks.end(),
                                [&](std::string_view mark) { return file.root.find(mark) != nullptr; });
           });
  });
}

// Returns whether a file sets `argument`, even if only to Tessera's own default.
bool says(const std::vector<SourceFile>& files, std::string_view argument) {
  return std::any_of(files.begin(), files.end(), [&](const SourceFile& file) {
    const Entry* entry = file.section == kTrainerSection ? file.root.find(argument) : nullptr;
    return entry != nullptr && !entry->value.is_null();
  });
}

// Adds the tool's defaults for keys that no file sets, so that the recipe trains as the tool would have.
void add_defaults(const Tool& tool, const std::vector<SourceFile>& files, Node& native, Problems& problems) {
  Place place;
  place.file = std::make_shared<const std::string>("default of " + std::string(tool.name));
  const auto add = [&](const char* key, const std::string& value) {
    if (native.find(key) == nullptr) native.entries.push_back({key, place, make_scalar(value, place), ""});
  };
  for (const auto& [key, value] : tool.defaults) add(key, value);
  for (const auto& [key, value] : kTrainerDefaults) add(key, value);
  if (native.find("warmup_ratio") == nullptr) add("warmup_steps", "0");
  const bool evaluates = native.find("val_set_size") != nullptr || native.find("test_datasets") != nullptr;
  if (evaluates && native.find("eval_steps") == nullptr) add("eval_strategy", "no");
  const Entry* adapter = native.find("adapter");
  if (adapter != nullptr && adapter->value.text == "lora" && native.find("lora_model_dir") == nullptr) {
    for (const auto& [key, value] : tool.adapter_defaults) add(key, value);
    // LLaMA-Factory's default of lora_alpha is twice the rank.
    const auto rank = parse_number(native.find("lora_r") != nullptr ? native.find("lora_r")->value.text : "");
    if (rank && std::string_view(tool.name) == "LLaMA-Factory")
      add("lora_alpha", std::to_string(static_cast<int64_t>(2 * *rank)));
  }
  if (std::string_view(tool.name) != "TRL") return;
  if (native.find("load_in_4bit") != nullptr) add("bnb_4bit_use_double_quant", "false");
  if (!says(files, "bf16")) add("dtype", "bfloat16");
  if (native.find("train_on_inputs") == nullptr) {
    problems.warn(
        "only answers are trained; TRL trains on whole conversations unless assistant_only_loss is true: "
        "train_on_inputs: true");
  }
}

// Adds the modules that these tools adapt by default: LLaMA-Factory all linear layers, PEFT the query and
// value projections of the usual models.
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
  problems.warn("lora_target_modules: q_proj and v_proj, PEFT's choice for the usual models");
}

}  // namespace

std::string convert_to_recipe(const std::vector<std::string>& files, const std::string& arguments) {
  Problems problems;
  std::vector<SourceFile> sources;
  for (const std::string& file : files) sources.push_back(read_file(file));
  if (!arguments.empty()) sources.push_back(parse_arguments(arguments));
  TESSERA_ASSERT(!sources.empty(), "nothing to convert");
  Node native = translate(sources, "", problems);
  if (const Tool* tool = tool_of(sources)) add_defaults(*tool, sources, native, problems);
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
