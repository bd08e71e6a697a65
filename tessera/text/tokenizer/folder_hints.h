// Settings of the files beside a tokenizer's vocabulary.
#pragma once

#include <optional>
#include <string>

#include "tessera/text/tokenizer/json_field.h"

namespace tessera::text {

// Settings of tokenizer_config.json, which the formats without a pipeline of their own leave to the class of
// the tokenizer.
struct FolderHints {
  std::string tokenizer_class;  // "LlamaTokenizer"; empty if the files do not say
  JsonField config;             // tokenizer_config.json

  // Returns a setting that is true, false or null.
  std::optional<bool> flag(const std::string& key) const {
    const JsonField field = config.at(key);
    return field.is_null() ? std::nullopt : std::optional(field.as_bool());
  }
  // Returns whether the class is that name, with or without "Fast" at its end.
  bool is_class(std::string_view name) const {
    return tokenizer_class == name || tokenizer_class == std::string(name) + "Fast";
  }
};

}  // namespace tessera::text
