#include "tessera/text/constraint/schema_keywords.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {
namespace {

using Json = SchemaJson;

constexpr std::string_view kAnnotations[] = {"title",
                                             "description",
                                             "default",
                                             "examples",
                                             "$schema",
                                             "$id",
                                             "$comment",
                                             "deprecated",
                                             "readOnly",
                                             "writeOnly",
                                             "$defs",
                                             "definitions",
                                             "id",
                                             "$vocabulary",
                                             "$anchor",
                                             "discriminator",
                                             "contentMediaType",
                                             "contentEncoding",
                                             "contentSchema"};

struct Keyword {
  std::string_view name, type;  // the type that it speaks of; "" = any
};
constexpr Keyword kKeywords[] = {{"type", ""},
                                 {"enum", ""},
                                 {"const", ""},
                                 {"anyOf", ""},
                                 {"oneOf", ""},
                                 {"allOf", ""},
                                 {"$ref", ""},
                                 {"not", ""},
                                 {"if", ""},
                                 {"then", ""},
                                 {"else", ""},
                                 {"properties", "object"},
                                 {"required", "object"},
                                 {"additionalProperties", "object"},
                                 {"unevaluatedProperties", "object"},
                                 {"patternProperties", "object"},
                                 {"propertyNames", "object"},
                                 {"minProperties", "object"},
                                 {"maxProperties", "object"},
                                 {"items", "array"},
                                 {"prefixItems", "array"},
                                 {"additionalItems", "array"},
                                 {"unevaluatedItems", "array"},
                                 {"minItems", "array"},
                                 {"maxItems", "array"},
                                 {"uniqueItems", "array"},
                                 {"contains", "array"},
                                 {"minContains", "array"},
                                 {"maxContains", "array"},
                                 {"minLength", "string"},
                                 {"maxLength", "string"},
                                 {"pattern", "string"},
                                 {"format", "string"},
                                 {"minimum", "number"},
                                 {"maximum", "number"},
                                 {"exclusiveMinimum", "number"},
                                 {"exclusiveMaximum", "number"},
                                 {"multipleOf", "number"}};

const Keyword* find_keyword(const std::string& name) {
  const auto found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found == std::end(kKeywords) ? nullptr : found;
}

std::set<std::string> named_types(const Json& type, const std::string& place) {
  static const std::set<std::string> known = {"null",   "boolean", "object", "array",
                                              "number", "integer", "string"};
  std::set<std::string> types;
  for (const Json& each : type.is_array() ? type : Json::array({type})) {
    if (!each.is_string() || !known.contains(each.get<std::string>()))
      throw schema_error(place + "/type",
                         "null, boolean, object, array, number, integer or string is needed");
    types.insert(each.get<std::string>());
  }
  return types;
}

Json join_types(const Json& first, const Json& second, const std::string& place) {
  const auto a = named_types(first, place), b = named_types(second, place);
  Json both = Json::array();
  for (const std::string& type : a) {
    if (b.contains(type) || (type == "integer" && b.contains("number"))) both.push_back(type);
  }
  if (a.contains("number") && b.contains("integer") && !a.contains("integer")) both.push_back("integer");
  return both;
}

// Gives the names that only `other` has what `schema` says about names that it does not know.
void close_properties(const Json& schema, const Json& before, Json& other) {
  const auto rest = schema.find("additionalProperties");
  if (rest == schema.end()) return;
  for (auto& [name, value] : other.items()) {
    if (!before.contains(name)) value = Json{{"allOf", Json::array({value, *rest})}};
  }
}

// Returns the joined values of one keyword; null if they cannot be joined.
Json join_values(const std::string& keyword, const Json& a, const Json& b, const std::string& place) {
  const auto both = [&] { return Json{{"allOf", Json::array({a, b})}}; };
  if (a == b) return a;
  if (keyword == "type") return join_types(a, b, place);
  if (keyword == "uniqueItems" && a.is_boolean() && b.is_boolean()) return true;
  if (keyword == "additionalProperties" || keyword == "items" || keyword == "propertyNames") return both();
  const bool are_numbers = a.is_number() && b.is_number(), are_arrays = a.is_array() && b.is_array();
  if (are_numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) return std::max(a, b);
  if (are_numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) return std::min(a, b);
  if (!are_arrays) return nullptr;
  if (keyword == "required" || keyword == "allOf") {
    Json all = a;
    for (const Json& each : b) {
      if (keyword == "allOf" || std::ranges::find(all, each) == all.end()) all.push_back(each);
    }
    return all;
  }
  if (keyword == "enum") {
    Json some = Json::array();
    for (const Json& each : a) {
      if (std::ranges::find(b, each) != b.end()) some.push_back(each);
    }
    return some;
  }
  return nullptr;
}

// Takes away what says nothing without another keyword, which the other schema may have.
void drop_idle(Json& schema) {
  for (const auto& [needed, keywords] : {std::pair("if", std::array{"then", "else"}),
                                         std::pair("contains", std::array{"minContains", "maxContains"})}) {
    if (schema.contains(needed)) continue;
    for (const char* keyword : keywords) schema.erase(keyword);
  }
}

void const_to_enum(Json& schema) {
  if (const auto found = schema.find("const"); found != schema.end()) {
    const Json values = Json::array({*found});
    schema.erase("const");
    schema = join_schemas(std::move(schema), Json{{"enum", values}}, "");
  }
}

// Returns the value of a keyword that is a whole number from 0 on.
std::optional<int64_t> size_of(const Json& schema, const char* keyword, const std::string& place) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return std::nullopt;
  const bool is_whole = found->is_number() && found->get<double>() >= 0 && found->get<double>() <= 1e15 &&
                        found->get<double>() == static_cast<double>(found->get<int64_t>());
  if (!is_whole) throw schema_error(place + "/" + keyword, "a whole number from 0 on is needed");
  return found->get<int64_t>();
}

}  // namespace

Error schema_error(const std::string& place, const std::string& message) {
  return constraint_error("SCHEMA", "the schema at " + place + ": " + message);
}

bool is_annotation(const std::string& keyword) {
  return keyword.starts_with("x-") || std::ranges::find(kAnnotations, keyword) != std::end(kAnnotations);
}

void check_keywords(const Json& schema, const std::string& place) {
  for (const auto& [name, value] : schema.items()) {
    if (!is_annotation(name) && find_keyword(name) == nullptr)
      throw schema_error(place, "the keyword '" + name + "' is not supported");
    const bool is_false = value == false || value == Json::object();
    if (!is_false && name.starts_with("unevaluated"))
      throw schema_error(place, "the keyword '" + name + "' is only supported as false");
  }
}

std::set<std::string> types_of(const Json& schema, const std::string& place) {
  if (const auto type = schema.find("type"); type != schema.end()) return named_types(*type, place);
  std::set<std::string> types;
  for (const auto& [name, value] : schema.items()) {
    const Keyword* keyword = find_keyword(name);
    if (keyword != nullptr && !keyword->type.empty()) types.emplace(keyword->type);
  }
  if (types.empty()) types = {"null", "boolean", "object", "array", "number", "string"};
  return types;
}

bool has_type(const Json& value, const std::set<std::string>& types) {
  if (value.is_number())
    return types.contains("number") || (types.contains("integer") && value.is_number_integer());
  return types.contains(value.type_name());
}

MemberCount sizes_of(const Json& schema, const char* min, const char* max, const std::string& place) {
  return {size_of(schema, min, place).value_or(0), size_of(schema, max, place).value_or(Grammar::kForever)};
}

Json join_schemas(Json first, Json second, const std::string& place) {
  if (first == true || second == false) return second;
  if (second == true || first == false) return first;
  if (!first.is_object() || !second.is_object()) throw schema_error(place, "an object is needed");
  drop_idle(first);
  drop_idle(second);
  if (first.contains("enum") || first.contains("const") || second.contains("enum")) {
    const_to_enum(first);
    const_to_enum(second);
  }
  const auto properties_of = [](const Json& schema) { return schema.value("properties", Json::object()); };
  Json ours = properties_of(first), theirs = properties_of(second);
  if ((first.contains("patternProperties") && !theirs.empty()) ||
      (second.contains("patternProperties") && !ours.empty()))
    throw schema_error(place, "patternProperties cannot be joined with properties by allOf, anyOf or $ref");
  if (ours.is_object() && theirs.is_object() && !(ours.empty() && theirs.empty())) {
    const Json before = ours;
    close_properties(first, before, theirs);
    close_properties(second, theirs, ours);
    for (const auto& [name, value] : theirs.items())
      ours[name] = before.contains(name) ? Json{{"allOf", Json::array({ours[name], value})}} : value;
    first["properties"] = std::move(ours);
    second.erase("properties");
  }
  for (const auto& [keyword, value] : second.items()) {
    if (is_annotation(keyword)) continue;
    if (!first.contains(keyword)) {
      first[keyword] = value;
      continue;
    }
    Json joined = join_values(keyword, first[keyword], value, place);
    if (joined.is_null())
      throw schema_error(place, "two '" + keyword + "' cannot be joined by allOf, anyOf or $ref");
    first[keyword] = std::move(joined);
  }
  return first;
}

}  // namespace tessera::text
