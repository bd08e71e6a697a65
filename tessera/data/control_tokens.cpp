#include "tessera/data/control_tokens.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::data {

ControlTokens::ControlTokens(const text::Tokenizer& tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    std::string token = tokenizer.id_to_token(id);
    // Many texts contain a token of one or two bytes and do not mean it.
    if (token.size() < 3) continue;
    if (firsts_.find(token.front()) == std::string::npos) firsts_ += token.front();
    tokens_.push_back(std::move(token));
  }
  std::sort(tokens_.begin(), tokens_.end());
}

bool ControlTokens::are_in(std::string_view text) const {
  for (size_t at = text.find_first_of(firsts_); at != std::string_view::npos && !tokens_.empty();
       at = text.find_first_of(firsts_, at + 1)) {
    const std::string_view rest = text.substr(at);
    // A token that `rest` begins with is sorted at or before `rest`. So the search goes backward from `rest`,
    // until the first three bytes of a token show that no token before it can match.
    for (auto token = std::upper_bound(tokens_.begin(), tokens_.end(), rest); token != tokens_.begin();) {
      --token;
      if (rest.starts_with(*token)) return true;
      if (token->substr(0, 1) != rest.substr(0, 1) || token->substr(0, 3) < rest.substr(0, 3)) break;
    }
  }
  return false;
}

bool ControlTokens::are_in_strings(const nlohmann::ordered_json& value) const {
  if (value.is_string()) return are_in(value.get_ref<const std::string&>());
  if (!value.is_structured()) return false;
  for (auto at = value.begin(); at != value.end(); ++at) {
    if ((value.is_object() && are_in(at.key())) || are_in_strings(*at)) return true;
  }
  return false;
}

}  // namespace tessera::data
