#include "tessera/config/json_schema.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "tessera/config/foreign_keys.h"
#include "tessera/config/key_help.h"
#include "tessera/config/schema.h"

namespace tessera::config {
namespace {

using Json = nlohmann::ordered_json;

Json one_of_types(const char* type) { return {{"type", {type, "null"}}}; }

// Also accepts the number as a string, since YAML 1.1 readers take 2e-5 for one.
Json number(const char* type, double low, double high) {
  constexpr double kTiny = std::numeric_limits<double>::min();
  Json json = {{"type", {type, "string", "null"}}, {"pattern", "^[-+]?[0-9_]*[.]?[0-9]*([eE][-+]?[0-9]+)?$"}};
  if (low == kTiny) {
    json["exclusiveMinimum"] = 0;
  } else if (low > -kUnbounded && low < high) {
    json["minimum"] = low;
  }
  if (high < kUnbounded && low < high)
    json[high < 1.0 && high > 0.9999 ? "exclusiveMaximum" : "maximum"] =
        high < 1.0 && high > 0.9999 ? 1.0 : high;
  return json;
}

// Accepts the names of `choices`, those that read as numbers or booleans also as such; any text if a name has
// a *.
Json names(std::span<const Choice> choices) {
  Json values = Json::array();
  for (const Choice& choice : choices) {
    if (choice.value == kNotBuilt) continue;
    if (choice.name.ends_with('*')) return one_of_types("string");
    const std::string name(choice.name);
    values.push_back(name);
    if (name == "true" || name == "false" || name == "no") values.push_back(name == "true");
    if (!name.empty() &&
        std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); }))
      values.push_back(std::stoi(name));
  }
  std::set<std::string> seen;
  Json unique = Json::array();
  for (const Json& value : values) {
    if (seen.insert(value.dump()).second) unique.push_back(value);
  }
  unique.push_back(nullptr);
  return {{"enum", unique}};
}

template <class T>
Json properties(std::span<const Key<T>> keys, std::string_view section_path, bool is_of_dataset);

Json list_of(Json items) { return {{"type", {"array", "null"}}, {"items", std::move(items)}}; }

Json object_of(Json properties) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

Json dataset_schema() { return object_of(properties(dataset_keys(), "datasets", true)); }
Json group_schema() { return object_of(properties(lr_group_keys(), "lr_groups", false)); }

template <class T>
Json value_of(const Key<T>& key) {
  return std::visit(
      [&](auto field) -> Json {
        using F = decltype(field);
        if constexpr (kHasNames<F, T>) {
          return names(key.choices);
        } else {
          using Value = std::remove_cvref_t<decltype(std::declval<T>().*field)>;
          if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, std::optional<bool>>) {
            return one_of_types("boolean");
          } else if constexpr (std::is_same_v<Value, int64_t> ||
                               std::is_same_v<Value, std::optional<int64_t>>) {
            return number("integer", key.low, key.high);
          } else if constexpr (std::is_same_v<Value, double> ||
                               std::is_same_v<Value, std::optional<double>>) {
            return number("number", key.low, key.high);
          } else if constexpr (std::is_same_v<Value, std::string>) {
            if (key.name == "type") return {{"type", {"string", "object", "null"}}};
            return key.choices.empty() ? Json{{"type", {"string", "number", "null"}}} : names(key.choices);
          } else if constexpr (std::is_same_v<Value, std::vector<DatasetConfig>>) {
            return list_of(dataset_schema());
          } else if constexpr (std::is_same_v<Value, std::vector<LrGroup>>) {
            return list_of(group_schema());
          } else if constexpr (requires(Value v) { v.begin()->second; }) {
            return one_of_types("object");
          } else {
            return {{"type", {"array", "string", "integer", "null"}}};  // a single text is a list of one item
          }
        }
      },
      key.field);
}

Json foreign(const ForeignKey& key) {
  Json json = Json::object();
  if (key.rule == Rule::Rename || key.rule == Rule::Map)
    json["description"] = "means " + std::string(key.target);
  if (key.rule == Rule::Ignore || key.rule == Rule::Quiet) {
    json["description"] = "no effect: " + std::string(key.target);
  }
  if (key.rule == Rule::Special) json["description"] = std::string(key.values);
  if (key.rule == Rule::Refuse) {
    json["description"] = "refused: " + std::string(key.target);
    json["deprecated"] = true;
  }
  return json;
}

template <class T>
Json properties(std::span<const Key<T>> keys, std::string_view section_path, bool is_of_dataset) {
  Json all = Json::object();
  for (const Key<T>& key : keys) {
    const std::string name(key.name);
    all[name] = value_of(key);
    const std::string help = std::is_same_v<T, LrGroup> ? "" : key_help(key.name, is_of_dataset);
    if (!help.empty()) all[name]["description"] = help;
  }
  for (const ForeignKey& key : section(section_path).keys) {
    if (key.rule != Rule::Hint && !key.name.ends_with('*')) all[std::string(key.name)] = foreign(key);
  }
  return all;
}

}  // namespace

std::string json_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "Tessera recipe"}};
  schema.update(object_of(properties(recipe_keys(), "", false)));
  Json prefixes = Json::object();
  for (const ForeignKey& key : section("").keys) {
    if (key.name.ends_with('*'))
      prefixes['^' + std::string(key.name.substr(0, key.name.size() - 1))] = foreign(key);
  }
  schema["patternProperties"] = prefixes;
  schema["required"] = Json::array();
  for (const std::string_view name : required_recipe_keys()) {
    if (name != "datasets") schema["required"].push_back(std::string(name));
  }
  for (const char* const data : {"datasets", "pretraining_dataset"})
    schema["anyOf"].push_back({{"required", Json::array({data})}});
  return schema.dump(1) + '\n';
}

}  // namespace tessera::config
