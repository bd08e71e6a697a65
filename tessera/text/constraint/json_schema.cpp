#include "tessera/text/constraint/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/text/constraint/json_rules.h"
#include "tessera/text/constraint/schema_document.h"
#include "tessera/text/constraint/schema_keywords.h"
#include "tessera/text/constraint/schema_logic.h"
#include "tessera/text/constraint/schema_scalars.h"

namespace tessera::text {
namespace {

using Json = SchemaJson;
using Expr = Grammar::Expr;
using Place = std::string;

constexpr int64_t kMostDepth = 200;

class SchemaReader {
 public:
  SchemaReader(const Json& root, bool allows_space) : document_(root), rules_(grammar_, allows_space) {}

  Grammar read() {
    grammar_.root = rule_of("#");
    while (!open_.empty()) {
      const auto [place, rule] = open_.front();
      open_.pop_front();
      grammar_.define(rule, schema(document_.at(place), place));
    }
    return std::move(grammar_);
  }

 private:
  // Returns the rule of the schema at a reference. It is defined later, since it may refer to itself.
  Grammar::Rule rule_of(const Place& reference) {
    const auto [found, is_new] = references_.try_emplace(reference);
    if (is_new) {
      found->second = grammar_.add_rule(reference);
      open_.emplace_back(reference, found->second);
    }
    return found->second;
  }

  Expr schema(const Json& schema, const Place& place) {
    document_.count(place);
    if (++depth_ > kMostDepth) throw schema_error(place, "schemas are nested too deeply");
    const Expr expr = whole(schema, place);
    --depth_;
    return expr;
  }

  Expr whole(const Json& schema, const Place& place) {
    if (schema == true) return rules_.value();
    if (schema == false) return grammar_.choice({});
    if (!schema.is_object()) throw schema_error(place, "an object is needed");
    check_keywords(schema, place);
    if (schema.contains("$ref")) {
      for (const auto& [name, value] : schema.items()) {
        if (name != "$ref" && !is_annotation(name))
          return this->schema(document_.resolved(schema, place), place);
      }
      return grammar_.call(rule_of(reference_of(schema, place)));
    }
    if (schema.contains("allOf")) return this->schema(document_.joined(schema, place), place);
    if (schema.contains("if")) return any_of(cases_of(schema, place), place);
    if (schema.contains("anyOf") || schema.contains("oneOf")) return any_of(schema, place);
    std::vector<Expr> parts;
    if (schema.contains("enum") || schema.contains("const")) {
      for (const Json& value : values_of(schema, place)) parts.push_back(rules_.literal(value));
      return grammar_.choice(std::move(parts));
    }
    const Exclusions excluded = exclusions_of(schema, place);
    for (const std::string& type : types_of(schema, place)) {
      if (type == "number" && excluded.types.contains("integer") && !excluded.types.contains("number"))
        throw schema_error(place + "/not", "integers are not left out of numbers");
      if (!excluded.types.contains(type))
        parts.push_back(of_type(schema, type, excluded.of_type(type), place));
    }
    return grammar_.choice(std::move(parts));
  }

  Expr any_of(const Json& schema, const Place& place) {
    const char* keyword = schema.contains("anyOf") ? "anyOf" : "oneOf";
    if (schema.contains("anyOf") && schema.contains("oneOf"))
      throw schema_error(place, "anyOf and oneOf cannot be joined");
    Json others = Json::object();
    for (const auto& [name, value] : schema.items()) {
      if (name != keyword && !is_annotation(name)) others[name] = value;
    }
    std::vector<Expr> parts;
    size_t number = 0;
    for (const Json& part : schemas_of(schema, keyword, place)) {
      const Place there = place + "/" + keyword + "/" + std::to_string(number++);
      parts.push_back(
          others.empty() ? this->schema(part, there)
                         : this->schema(join_schemas(others, document_.resolved(part, there), there), there));
    }
    return grammar_.choice(std::move(parts));
  }

  // Returns the values of a schema with enum or const.
  static Json values_of(const Json& schema, const Place& place) {
    for (const auto& [name, value] : schema.items()) {
      if (name != "enum" && name != "const" && name != "type" && name != "not" && !is_annotation(name))
        throw schema_error(place, "the keyword '" + name + "' is not supported beside enum or const");
    }
    if (schema.contains("enum") && schema.contains("const"))
      throw schema_error(place, "enum and const cannot be joined");
    const bool is_const = schema.contains("const");
    if (!is_const && !schema.at("enum").is_array())
      throw schema_error(place + "/enum", "an array of values is needed");
    const Exclusions excluded = exclusions_of(schema, place);
    Json values = Json::array();
    for (const Json& value : is_const ? Json::array({schema.at("const")}) : schema.at("enum")) {
      if ((!schema.contains("type") || has_type(value, types_of(schema, place))) && !excluded.has(value))
        values.push_back(value);
    }
    return values;
  }

  Expr of_type(const Json& schema, const std::string& type, const Json& excluded, const Place& place) {
    if (type == "string") return string_of_schema(grammar_, rules_, schema, excluded, place);
    if (type == "integer" || type == "number")
      return number_of_schema(grammar_, rules_, schema, type == "integer", excluded, place);
    if (type == "null") return excluded.empty() ? rules_.null() : grammar_.choice({});
    if (type == "boolean") {
      std::vector<Expr> parts;
      for (const bool value : {true, false}) {
        if (std::ranges::find(excluded, Json(value)) == excluded.end())
          parts.push_back(rules_.literal(value));
      }
      return grammar_.choice(std::move(parts));
    }
    if (!excluded.empty()) throw schema_error(place + "/not", "no single " + type + " can be left out");
    return type == "object" ? object(schema, place) : array(schema, place);
  }

  Expr object(const Json& schema, const Place& place);
  // Returns members whose names no property gives: those of patternProperties, and those that `rest`, the
  // schema of all others, allows. `names` are the names that are taken.
  std::vector<Expr> other_members(const Json& schema, const Place& place, const Json& patterns,
                                  const Json& rest, const std::vector<std::string>& names);
  Expr array(const Json& schema, const Place& place);
  // Returns an array of items without an order, as `uniqueItems` and `contains` speak of them.
  Expr distinct_array(const Json& items, const MemberCount& count, const Place& place);
  Expr array_with(const Json& schema, const Json& items, const MemberCount& count, const Place& place);

  SchemaDocument document_;
  Grammar grammar_;
  JsonRules rules_;
  std::map<Place, Grammar::Rule> references_;
  std::deque<std::pair<Place, Grammar::Rule>> open_;
  int64_t depth_ = 0;
};

Expr SchemaReader::object(const Json& schema, const Place& place) {
  const Json properties = schema.value("properties", Json::object());
  const Json required = schema.value("required", Json::array());
  const Json patterns = schema.value("patternProperties", Json::object());
  if (!properties.is_object()) throw schema_error(place + "/properties", "an object is needed");
  if (!patterns.is_object()) throw schema_error(place + "/patternProperties", "an object is needed");
  if (!required.is_array()) throw schema_error(place + "/required", "an array is needed");
  const bool is_open = properties.empty() && required.empty() && patterns.empty();
  const Json rest = schema.value("additionalProperties", Json(is_open));
  std::vector<std::string> names;
  std::vector<JsonRules::Member> members;
  const auto add = [&](const std::string& name, const Json& value, const Place& there, bool is_required) {
    names.push_back(name);
    members.push_back({rules_.member(rules_.literal(name), this->schema(value, there)), is_required});
  };
  for (const auto& [name, value] : properties.items()) {
    const bool is_required = std::ranges::find(required, Json(name)) != required.end();
    add(name, value, place + "/properties/" + name, is_required);
  }
  for (const Json& name : required) {
    if (!name.is_string()) throw schema_error(place + "/required", "an array of texts is needed");
    if (properties.contains(name.get<std::string>())) continue;
    if (!patterns.empty())
      throw schema_error(place, "required names beside patternProperties must be properties");
    const Json value = schema.contains("additionalProperties") ? rest : Json(true);
    add(name.get<std::string>(), value, place + "/additionalProperties", true);
  }
  if ((schema.contains("propertyNames") || !patterns.empty()) && !members.empty())
    throw schema_error(place, "propertyNames and patternProperties are not supported beside properties");
  const std::vector<Expr> others = other_members(schema, place, patterns, rest, names);
  MemberCount count = sizes_of(schema, "minProperties", "maxProperties", place);
  if (count.is_empty()) return grammar_.choice({});
  if (!members.empty() && (schema.contains("minProperties") || schema.contains("maxProperties"))) {
    const auto least = std::ranges::count_if(members, &JsonRules::Member::is_required);
    const bool has_most =
        count.max != Grammar::kForever && (!others.empty() || std::ssize(members) > count.max);
    if (least < count.min || has_most)
      throw schema_error(place, "minProperties and maxProperties are not supported beside properties");
    count = {};
  }
  return rules_.object(members, others.empty() ? std::nullopt : std::optional(grammar_.choice(others)),
                       count);
}

std::vector<Expr> SchemaReader::other_members(const Json& schema, const Place& place, const Json& patterns,
                                              const Json& rest, const std::vector<std::string>& names) {
  const bool has_names = schema.contains("propertyNames");
  std::vector<Expr> others;
  for (const auto& [pattern, value] : patterns.items()) {
    const Place there = place + "/patternProperties";
    others.push_back(
        rules_.member(matching_string(grammar_, rules_, Json(pattern), there), this->schema(value, there)));
  }
  if (patterns.size() > 1 || (!patterns.empty() && (has_names || rest != false)))
    throw schema_error(place, "only one pattern in patternProperties is supported, without other names");
  if (rest == false) return others;
  Expr key = rules_.other_string(names);
  if (has_names) {
    const Json name =
        join_schemas(document_.resolved(schema.at("propertyNames"), place), {{"type", "string"}}, place);
    key = this->schema(name, place + "/propertyNames");
  }
  others.push_back(rules_.member(key, this->schema(rest, place + "/additionalProperties")));
  return others;
}

Expr SchemaReader::array(const Json& schema, const Place& place) {
  const bool has_old_items = schema.contains("items") && schema.at("items").is_array();
  const char* first = has_old_items ? "items" : "prefixItems";
  const Json prefix = schema.value(first, Json::array());
  if (!prefix.is_array()) throw schema_error(place + "/" + first, "an array is needed");
  const char* later = has_old_items ? "additionalItems" : "items";
  const Json rest = schema.value(later, Json(prefix.empty()));
  const MemberCount count = sizes_of(schema, "minItems", "maxItems", place);
  const bool has_prefix = !prefix.empty();
  const bool wants_nothing = schema.value("minContains", Json(1)) == 0 && !schema.contains("maxContains");
  const bool has_wanted = schema.contains("contains") && !wants_nothing;
  const int64_t most = rest == false ? std::ssize(prefix) : count.max;
  const Json is_unique = schema.value("uniqueItems", Json(false));
  if (!is_unique.is_boolean()) throw schema_error(place + "/uniqueItems", "true or false is needed");
  const bool is_distinct = is_unique == true && (most == Grammar::kForever || most > 1);
  if (has_prefix && (is_distinct || has_wanted))
    throw schema_error(place,
                       "uniqueItems and contains are not supported beside items with places of their own");
  if (has_wanted) {
    if (is_distinct) throw schema_error(place, "uniqueItems and contains cannot be joined");
    return array_with(schema, rest, count, place);
  }
  if (is_distinct) return distinct_array(rest, count, place + "/items");
  std::vector<Expr> items;
  for (const Json& item : prefix)
    items.push_back(this->schema(item, place + "/" + first + "/" + std::to_string(items.size())));
  if (count.is_empty() || (rest == false && count.min > std::ssize(items))) return grammar_.choice({});
  std::optional<Expr> other;
  if (rest != false) other = this->schema(rest, place + "/" + later);
  return rules_.array(items, count, other);
}

Expr SchemaReader::distinct_array(const Json& items, const MemberCount& count, const Place& place) {
  constexpr size_t kMostDistinct = 8;
  const Json item = document_.resolved(items, place);
  Json values = Json::array(), distinct = Json::array();
  if (item.is_object() && (item.contains("enum") || item.contains("const"))) {
    values = values_of(item, place);
  } else if (item == Json{{"type", "boolean"}}) {
    values = {true, false};
  }
  for (const Json& value : values) {
    if (std::ranges::find(distinct, value) == distinct.end()) distinct.push_back(value);
  }
  if (values.empty() || distinct.size() > kMostDistinct) {
    throw schema_error(place, "beside uniqueItems, an enum of at most " + std::to_string(kMostDistinct) +
                                  " values is needed");
  }
  std::vector<Expr> parts;
  for (const Json& value : distinct) parts.push_back(rules_.literal(value));
  return rules_.distinct_array(parts, count);
}

Expr SchemaReader::array_with(const Json& schema, const Json& items, const MemberCount& count,
                              const Place& place) {
  constexpr int64_t kMostWanted = 16;
  const int64_t least =
      schema.contains("minContains") ? sizes_of(schema, "minContains", "maxContains", place).min : 1;
  if (schema.contains("maxContains") || least < 1 || least > kMostWanted)
    throw schema_error(place, "contains needs a minContains from 1 to " + std::to_string(kMostWanted) +
                                  " and no maxContains");
  if (count.min > least || count.max != Grammar::kForever)
    throw schema_error(place, "minItems and maxItems are not supported beside contains");
  const Place there = place + "/contains";
  const Json wanted =
      join_schemas(document_.resolved(items, place), document_.resolved(schema.at("contains"), there), there);
  return rules_.array_with(this->schema(items, place + "/items"), this->schema(wanted, there), least);
}

}  // namespace

Grammar read_json_schema(const Json& schema, bool allows_space) {
  return SchemaReader(schema, allows_space).read();
}

}  // namespace tessera::text
