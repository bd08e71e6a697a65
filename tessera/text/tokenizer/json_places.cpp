#include "tessera/text/tokenizer/json_places.h"

#include <string>

#include <nlohmann/json.hpp>

namespace tessera::text {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Returns the end of the string that begins with the quote at `begin`.
size_t end_of_string(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return i + 1;
}

// Returns the end of the value that begins at `begin`.
size_t end_of_value(std::string_view text, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      i = end_of_string(text, i);
      if (depth == 0) return i;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return i;  // the end of a number or a word that ends its object
      if (--depth == 0) return i + 1;
    }
    if (depth == 0 && (c == ',' || kBlank.find(c) != std::string_view::npos)) return i;
    ++i;
  }
  return text.size();
}

// Returns the place of the member `key` of the object that begins at `begin`.
std::optional<JsonPlace> find_member(std::string_view text, size_t begin, std::string_view key) {
  const auto skip_to = [&](size_t from) { return text.find_first_not_of(kBlank, from); };
  for (size_t i = skip_to(begin + 1); i < text.size() && text[i] == '"';) {
    const size_t key_end = end_of_string(text, i);
    const std::string_view quoted = text.substr(i, key_end - i);
    const size_t value = skip_to(skip_to(key_end) + 1);
    const size_t value_end = end_of_value(text, value);
    const bool is_plain = quoted.find('\\') == std::string_view::npos;
    if (is_plain ? quoted.substr(1, quoted.size() - 2) == key
                 : nlohmann::json::parse(quoted).get<std::string>() == key)
      return JsonPlace{value, value_end};
    i = skip_to(value_end);
    if (i < text.size() && text[i] == ',') i = skip_to(i + 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<JsonPlace> find_json_value(std::string_view text,
                                         std::initializer_list<std::string_view> keys) {
  JsonPlace place{text.find_first_not_of(kBlank), text.size()};
  for (const std::string_view key : keys) {
    if (place.begin >= text.size() || text[place.begin] != '{') return std::nullopt;
    const auto member = find_member(text, place.begin, key);
    if (!member) return std::nullopt;
    place = *member;
  }
  return place;
}

}  // namespace tessera::text
