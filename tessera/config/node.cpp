#include "tessera/config/node.h"

#include <algorithm>
#include <utility>

#include "tessera/config/scalar.h"

namespace tessera::config {

Entry* Node::find(std::string_view key) {
  const auto it = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return it == entries.end() ? nullptr : &*it;
}

const Entry* Node::find(std::string_view key) const { return const_cast<Node*>(this)->find(key); }

void Node::erase(std::string_view key) {
  std::erase_if(entries, [&](const Entry& e) { return e.key == key; });
}

Node make_scalar(std::string text, const Place& place) {
  Node node;
  node.kind = Node::Kind::Scalar;
  node.text = std::move(text);
  node.place = place;
  return node;
}

std::string describe(const Node& node) {
  constexpr size_t kMaxShown = 80;
  switch (node.kind) {
    case Node::Kind::Null: return "null";
    case Node::Kind::Sequence: return "a list of " + std::to_string(node.items.size());
    case Node::Kind::Map: return "a map of " + std::to_string(node.entries.size());
    case Node::Kind::Scalar: break;
  }
  if (!node.is_quoted && parse_number(node.text)) return node.text;
  if (!node.is_quoted && parse_bool(node.text)) return "the boolean " + node.text;
  if (node.text.size() > kMaxShown) {
    size_t end = kMaxShown;
    while (end > 0 && (static_cast<unsigned char>(node.text[end]) & 0xC0) == 0x80)
      --end;  // must not cut inside a UTF-8 character
    return "the text '" + node.text.substr(0, end) + "...'";
  }
  return "the text '" + node.text + "'";
}

Error config_error(std::string_view name, std::string what, const Place& place) {
  Error error(ErrorKind::Config, name, std::move(what));
  if (place.file) error.at(*place.file, place.line, place.column);
  return error;
}

KeyPlace to_key_place(const Place& place) {
  return {{place.file ? *place.file : std::string(), place.line, place.column}};
}

std::string describe_place(const Place& place, const Place& other) {
  if (place.is_override) return "the command line";
  const std::string line = "line " + std::to_string(place.line);
  if (!place.file || (other.file && *place.file == *other.file)) return line;
  return *place.file + ':' + std::to_string(place.line);
}

std::string place_text(const SourcePlace& place) {
  return place.file + (place.line > 0 ? ':' + std::to_string(place.line) : "");
}

std::string place_prefix(const Place& place) {
  return place.file ? place_text(to_key_place(place)) + ": " : "";
}

}  // namespace tessera::config
