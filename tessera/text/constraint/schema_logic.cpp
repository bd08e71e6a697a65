#include "tessera/text/constraint/schema_logic.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::text {
namespace {

using Json = SchemaJson;

// Returns the only keyword of a schema; "" if it has none or several.
std::string only_keyword(const Json& schema) {
  std::string only;
  if (!schema.is_object()) return only;
  for (const auto& [name, value] : schema.items()) {
    if (is_annotation(name)) continue;
    if (!only.empty()) return "";
    only = name;
  }
  return only;
}

bool names_values(const Json& schema) {
  const std::string keyword = only_keyword(schema);
  return keyword == "const" || (keyword == "enum" && schema.at("enum").is_array());
}

}  // namespace

bool Exclusions::has(const Json& value) const {
  return has_type(value, types) || std::ranges::find(values, value) != values.end();
}

Json Exclusions::of_type(const std::string& type) const {
  Json some = Json::array();
  for (const Json& value : values) {
    const bool is_whole =
        type == "integer" && value.is_number() && std::trunc(value.get<double>()) == value.get<double>();
    if (is_whole || has_type(value, {type})) some.push_back(value);
  }
  return some;
}

Exclusions exclusions_of(const Json& schema, const std::string& place) {
  Exclusions excluded;
  const auto found = schema.find("not");
  if (found == schema.end()) return excluded;
  if (only_keyword(*found) == "type") {
    excluded.types = types_of(*found, place + "/not");
    if (excluded.types.contains("number")) excluded.types.insert("integer");
  } else if (names_values(*found)) {
    excluded.values = found->contains("enum") ? found->at("enum") : Json::array({found->at("const")});
  } else {
    throw schema_error(place, "the keyword 'not' is only supported with type, enum or const alone");
  }
  return excluded;
}

Json cases_of(Json schema, const std::string& place) {
  const Json condition = schema.at("if");
  const Json taken = schema.value("then", Json(true)), other = schema.value("else", Json(true));
  for (const char* keyword : {"if", "then", "else"}) schema.erase(keyword);
  const auto problem = [&] {
    return schema_error(place + "/if",
                        "only a condition on the const or enum of one property is supported, in an object "
                        "that requires it and has no anyOf or oneOf");
  };
  if (!condition.is_object() || schema.contains("anyOf") || schema.contains("oneOf")) throw problem();
  for (const auto& [keyword, value] : condition.items()) {
    if (keyword != "properties" && keyword != "required" && !is_annotation(keyword) &&
        !(keyword == "type" && value == "object"))
      throw problem();
  }
  const Json properties = condition.value("properties", Json()), required = schema.value("required", Json());
  if (!properties.is_object() || properties.size() != 1 || schema.value("type", Json()) != "object")
    throw problem();
  const std::string name = properties.begin().key();
  const Json one = Json::array({name}), needed = condition.value("required", one);
  if (needed != one || !names_values(properties.at(name)) || !required.is_array() ||
      std::ranges::find(required, Json(name)) == required.end())
    throw problem();
  const auto case_of = [&](const Json& value, const Json& rest) {
    const Json is_case = {{"properties", {{name, value}}}};
    return Json{{"allOf", Json::array({is_case, rest})}};
  };
  schema["anyOf"] =
      Json::array({case_of(properties.at(name), taken), case_of(Json{{"not", properties.at(name)}}, other)});
  return schema;
}

}  // namespace tessera::text
