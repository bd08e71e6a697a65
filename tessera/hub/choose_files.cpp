#include "tessera/hub/choose_files.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/gguf_parts.h"
#include "tessera/io/json_file.h"

namespace tessera::hub {
namespace {

// The files that a tokenizer may be read from.
constexpr std::string_view kVocabularies[] = {"tokenizer.json",         "tekken.json", "tokenizer.model",
                                              "spiece.model",           "vocab.json",  "vocab.txt",
                                              "sentencepiece.bpe.model"};
constexpr std::string_view kTokenizerFiles[] = {"tokenizer_config.json", "special_tokens_map.json",
                                                "added_tokens.json",     "merges.txt",
                                                "chat_template.jinja",   "chat_template.json"};

bool is_vocabulary(const std::string& name) {
  return std::ranges::find(kVocabularies, name) != std::end(kVocabularies) ||
         (name.ends_with(".tiktoken") && name.find('/') == std::string::npos);
}

void take(const Names& names, const std::string& name, Choice& choice) {
  if (names.contains(name)) choice.files.push_back(name);
}

void take_tokenizer(const Names& names, Choice& choice) {
  for (const std::string_view name : kTokenizerFiles) take(names, std::string(name), choice);
  for (const std::string& name : names) {
    if (name.starts_with("additional_chat_templates/") || is_vocabulary(name)) choice.files.push_back(name);
  }
  choice.is_sure = names.contains("tokenizer.json") && names.contains("tokenizer_config.json");
}

// Names a few files, for an error.
std::string shown(const Names& names) {
  constexpr size_t kMost = 6;
  std::vector<std::string> some;
  for (const std::string& name : names) {
    if (!name.starts_with(".") && some.size() < kMost) some.push_back(name);
  }
  return some.empty() ? "no files" : join(some, ", ") + (names.size() > some.size() ? ", ..." : "");
}

Error files_error(const Names& names, const std::string& what) {
  return Error(ErrorKind::Config, "HUB-FILES", what).got(shown(names));
}

// Takes `stem`.safetensors, or the shards that its index names. Returns whether there is one of them.
bool take_weights(const Names& names, const ReadFile& read, const std::string& stem, Choice& choice) {
  const std::string one = stem + ".safetensors", index = one + ".index.json";
  if (names.contains(one)) {
    choice.files.push_back(one);
    return true;
  }
  if (!names.contains(index)) return false;
  choice.files.push_back(index);
  const nlohmann::json parsed = io::parse_json(read(index), index);
  const auto map = parsed.is_object() ? parsed.find("weight_map") : parsed.end();
  if (map == parsed.end() || !map->is_object()) throw files_error(names, index + " has no weight_map");
  Names shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (shard.is_string()) shards.insert(shard.get<std::string>());
  }
  choice.files.insert(choice.files.end(), shards.begin(), shards.end());
  return true;
}

Error no_weights_error(const Names& names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return name.ends_with(".gguf"); });
  Error error =
      files_error(names, "the repository contains no weights in safetensors").need("model.safetensors");
  if (found != names.end()) error.hint("name one of its GGUF files: org/name:" + *found);
  return error;
}

}  // namespace

Choice choose_model(const Names& names, const ReadFile& read) {
  if (!names.contains("config.json") && names.contains("adapter_config.json"))
    return choose_adapter(names, read);
  Choice choice;
  if (!take_weights(names, read, "model", choice)) throw no_weights_error(names);
  if (!names.contains("config.json"))
    throw files_error(names, "the repository contains no model").need("config.json");
  choice.files.push_back("config.json");
  for (const char* name : {"generation_config.json", "preprocessor_config.json", "processor_config.json",
                           "video_preprocessor_config.json"})
    take(names, name, choice);
  take_tokenizer(names, choice);
  return choice;
}

Choice choose_adapter(const Names& names, const ReadFile& read) {
  Choice choice;
  if (!names.contains("adapter_config.json")) {
    throw files_error(names, "the repository contains no adapter").need("adapter_config.json");
  }
  choice.files.push_back("adapter_config.json");
  if (!take_weights(names, read, "adapter_model", choice))
    throw files_error(names, "the repository contains no weights in safetensors")
        .need("adapter_model.safetensors");
  take_tokenizer(names, choice);
  return choice;
}

Choice choose_tokenizer(const Names& names, const ReadFile&) {
  Choice choice;
  if (!std::ranges::any_of(names, is_vocabulary))
    throw files_error(names, "the repository contains no tokenizer").need("tokenizer.json");
  take_tokenizer(names, choice);
  take(names, "config.json", choice);
  take(names, "generation_config.json", choice);
  return choice;
}

ChooseFiles choose_one(const std::string& file) {
  return [file](const Names& names, const ReadFile&) {
    if (!names.contains(file)) throw files_error(names, "the repository has no such file").need(file);
    return Choice{io::gguf_part_names(file)};
  };
}

}  // namespace tessera::hub
