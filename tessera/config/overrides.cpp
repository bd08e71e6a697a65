#include "tessera/config/overrides.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/config/scalar.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

Error override_error(const std::string& argument, std::string what, const Place& place) {
  return config_error("OVERRIDE", "override '" + argument + "': " + std::move(what), place);
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (true) {
    const size_t dot = path.find('.', start);
    parts.emplace_back(path.substr(start, dot == std::string_view::npos ? dot : dot - start));
    if (dot == std::string_view::npos) return parts;
    start = dot + 1;
  }
}

std::optional<size_t> parse_index(const std::string& part) {
  if (part.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  const ParsedInteger parsed = parse_integer(part);
  if (parsed.status != IntegerStatus::Ok) return std::nullopt;
  return static_cast<size_t>(parsed.value);
}

// Returns the child of `node` that `part` names, and makes it if it is absent.
Node& descend(Node& node, const std::string& part, bool is_last, const std::string& argument,
              const Place& place) {
  const auto index = parse_index(part);
  if (node.is_null()) {
    node.kind = index == size_t{0} ? Node::Kind::Sequence : Node::Kind::Map;
    node.place = place;
  }
  if (node.is_sequence()) {
    if (!index) throw override_error(argument, "a list is indexed with numbers", place).got("'" + part + "'");
    if (*index > node.items.size()) {
      throw override_error(argument, "no such list item", place)
          .got(part)
          .need("at most " + std::to_string(node.items.size()));
    }
    if (*index == node.items.size()) node.items.emplace_back().place = place;
    return node.items[*index];
  }
  if (node.is_scalar()) {
    throw override_error(argument, "'" + part + "' is a key inside a plain value", place).got(describe(node));
  }
  if (Entry* entry = node.find(part)) {
    if (is_last) entry->key_place = place;
    return entry->value;
  }
  node.entries.push_back({part, place, Node(), ""});
  return node.entries.back().value;
}

void apply_override(const std::string& argument, const Place& place, Node& root) {
  check_text(argument, place);
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw override_error(argument, "not an override", place).need("key=value");
  }
  const std::vector<std::string> parts = split_path(std::string_view(argument).substr(0, equals));
  if (parts.size() > static_cast<size_t>(kMaxDepth)) throw override_error(argument, "too many levels", place);
  if (std::find(parts.begin(), parts.end(), "") != parts.end())
    throw override_error(argument, "an empty name in the key", place).need("key=value");
  Node value = parse_yaml(std::string_view(argument).substr(equals + 1), place);
  value.place = place;
  Node* node = &root;
  for (size_t i = 0; i < parts.size(); ++i) {
    node = &descend(*node, parts[i], i + 1 == parts.size(), argument, place);
  }
  *node = std::move(value);
}

}  // namespace

void apply_overrides(const std::vector<std::string>& overrides, Node& root, Problems& problems) {
  Place place;
  place.file = std::make_shared<const std::string>("command line");
  place.is_override = true;
  if (root.is_null() && !overrides.empty()) root.kind = Node::Kind::Map;
  for (const std::string& argument : overrides) {
    problems.attempt("", to_key_place(place), [&] { apply_override(argument, place, root); });
  }
}

}  // namespace tessera::config
