#include "tessera/config/values.h"

#include <algorithm>

#include "tessera/config/scalar.h"
#include "tessera/core/strings.h"

namespace tessera::config {

std::vector<std::string> split_words(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  size_t start = 0;
  while ((start = text.find_first_not_of(separators, start)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(separators, start), text.size());
    words.emplace_back(text.substr(start, end - start));
    start = end;
  }
  return words;
}

std::string canonical(const Node& scalar) {
  if (!scalar.is_quoted) {
    if (const auto value = parse_bool(scalar.text)) return *value ? "true" : "false";
  }
  return lower(scalar.text);
}

bool is_off(const Node& node, std::string_view off_values) {
  switch (node.kind) {
    case Node::Kind::Null: return true;
    case Node::Kind::Sequence: return node.items.empty();
    case Node::Kind::Map: return node.entries.empty();
    case Node::Kind::Scalar: break;
  }
  const std::string text = canonical(node);
  if (text.empty() || text == "false" || text == "none") return true;
  const std::vector<std::string> words = split_words(off_values, " ");
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::optional<std::string> look_up(std::string_view values, const std::string& text) {
  const std::string other = text == "false" ? "no" : text == "true" ? "yes" : text;
  for (const std::string& pair : split_words(values, " ")) {
    const size_t equals = pair.find('=');
    const std::string_view theirs = std::string_view(pair).substr(0, equals);
    if (theirs == text || theirs == other) return pair.substr(equals + 1);
  }
  return std::nullopt;
}

Node list_of(const Node& value) {
  if (!value.is_scalar()) return value;
  Node list;
  list.kind = Node::Kind::Sequence;
  list.place = value.place;
  for (const std::string& name : split_words(value.text, " ,")) {
    list.items.push_back(make_scalar(name, value.place));
    list.items.back().is_quoted = true;
  }
  return list;
}

std::optional<Node> assignments_of(const Node& value, const Place& key_place) {
  if (!value.is_scalar()) return std::nullopt;
  Node map;
  map.kind = Node::Kind::Map;
  map.place = value.place;
  for (const std::string& pair : split_words(value.text, " ,")) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size()) return std::nullopt;
    map.entries.push_back(
        {pair.substr(0, equals), key_place, make_scalar(pair.substr(equals + 1), value.place), ""});
  }
  return map;
}

}  // namespace tessera::config
