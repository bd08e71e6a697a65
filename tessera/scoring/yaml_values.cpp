#include "tessera/scoring/yaml_values.h"

#include <algorithm>

#include "tessera/config/scalar.h"
#include "tessera/core/strings.h"

namespace tessera::scoring {
namespace {

bool is_integer(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text[0] != '_' && text.find_first_not_of("0123456789_") == std::string_view::npos;
}

}  // namespace

Json json_of(const config::Node& node) {
  if (!node.tag.empty()) {
    throw config::config_error("TASK-FUNCTION", "Python code is not run", node.place)
        .got(node.tag + " " + node.text)
        .need("a value or a Jinja template");
  }
  switch (node.kind) {
    case config::Node::Kind::Null: return nullptr;
    case config::Node::Kind::Sequence: {
      Json list = Json::array();
      for (const config::Node& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case config::Node::Kind::Map: {
      Json map = Json::object();
      for (const config::Entry& entry : node.entries) map[entry.key] = json_of(entry.value);
      return map;
    }
    case config::Node::Kind::Scalar: break;
  }
  if (node.is_quoted) return node.text;
  if (const auto boolean = config::parse_bool(node.text)) return *boolean;
  if (is_integer(node.text)) {
    if (const auto integer = config::parse_integer(node.text); integer.status == config::IntegerStatus::Ok)
      return integer.value;
  }
  if (node.text.find('.') != std::string::npos) {
    if (const auto number = config::parse_number(node.text)) return *number;
  }
  return node.text;
}

Error wrong_value(const config::Entry& entry, const std::string& need) {
  Error error =
      config::config_error("TASK-VALUE", "key '" + entry.key + "' has the wrong value", entry.value.place);
  return error.got(config::describe(entry.value)).need(need);
}

std::string text_of(const config::Entry& entry) {
  const Json value = json_of(entry.value);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return entry.value.text;
  throw wrong_value(entry, "a text");
}

int64_t integer_of(const config::Entry& entry) {
  const Json value = json_of(entry.value);
  if (!value.is_number_integer()) throw wrong_value(entry, "a whole number");
  return value.get<int64_t>();
}

double number_of(const config::Entry& entry) {
  const Json value = json_of(entry.value);
  if (!value.is_number()) throw wrong_value(entry, "a number");
  return value.get<double>();
}

bool boolean_of(const config::Entry& entry) {
  const Json value = json_of(entry.value);
  if (!value.is_boolean()) throw wrong_value(entry, "true or false");
  return value.get<bool>();
}

std::vector<std::string> texts_of(const config::Entry& entry) {
  const Json value = json_of(entry.value);
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> texts;
  for (const Json& item : value) {
    if (!value.is_array() || !item.is_string()) throw wrong_value(entry, "a text or a list of texts");
    texts.push_back(item.get<std::string>());
  }
  if (!value.is_array()) throw wrong_value(entry, "a text or a list of texts");
  return texts;
}

void refuse_unknown(const config::Node& map, const std::vector<std::string>& known, const std::string& what) {
  for (const config::Entry& entry : map.entries) {
    if (std::ranges::find(known, entry.key) != known.end()) continue;
    const std::string near = nearest_name(entry.key, known);
    throw config::config_error("TASK-KEY", "unknown key '" + entry.key + "' of " + what, entry.key_place)
        .hint(near.empty() ? "known keys: " + join(known, ", ") : "did you mean '" + near + "'?");
  }
}

}  // namespace tessera::scoring
