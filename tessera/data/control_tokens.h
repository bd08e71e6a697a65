// Finds texts that spell control tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// The special tokens of a tokenizer that have at least three bytes, to look for in the records of a dataset.
// Immutable.
class ControlTokens {
 public:
  explicit ControlTokens(const text::Tokenizer& tokenizer);
  // Returns whether the text spells one of the tokens.
  bool are_in(std::string_view text) const;
  // Returns whether a string in the value, or a key of an object in it, spells one of the tokens.
  bool are_in_strings(const nlohmann::ordered_json& value) const;

 private:
  std::string firsts_;  // the first bytes of tokens_, each once
  std::vector<std::string> tokens_;
};

}  // namespace tessera::data
