#include "tessera/text/constraint/json_schema.h"

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/text/constraint/json_rules.h"
#include "tessera/text/constraint/number_ranges.h"
#include "tessera/text/constraint/regex_reader.h"
#include "tessera/text/constraint/schema_keywords.h"
#include "tessera/text/constraint/string_formats.h"

namespace tessera::text {
namespace {

using Json = SchemaJson;
using Expr = Grammar::Expr;
using Place = std::string;

constexpr int64_t kMostSchemas = 20000, kMostDepth = 200;

class SchemaReader {
 public:
  SchemaReader(const Json& root, bool allows_space) : root_(root), rules_(grammar_, allows_space) {}

  Grammar read() {
    grammar_.root = rule_of("#");
    while (!open_.empty()) {
      const auto [place, rule] = open_.front();
      open_.pop_front();
      grammar_.define(rule, schema(at(place), place));
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

  const Json& at(const Place& reference) const {
    if (reference == "#") return root_;
    try {
      if (reference.starts_with("#/")) return root_.at(Json::json_pointer(reference.substr(1)));
    } catch (const Json::exception&) {
      // Nothing is there.
    }
    throw schema_error(reference, "$ref needs the place of a schema in the same document, as #/$defs/name");
  }

  void count(const Place& place) {
    if (++num_schemas_ > kMostSchemas) {
      throw constraint_error("SIZE", "the schema is too large or refers to itself without end")
          .got(place)
          .need("at most " + std::to_string(kMostSchemas) + " parts");
    }
  }

  static Place reference_of(const Json& schema, const Place& place) {
    const Json& reference = schema.at("$ref");
    if (!reference.is_string()) throw schema_error(place + "/$ref", "a text is needed");
    return reference.get<std::string>();
  }

  // Returns the schema with what it refers to in the place of the reference.
  Json resolved(Json schema, const Place& place) {
    while (schema.is_object() && schema.contains("$ref")) {
      count(place);
      const Json target = at(reference_of(schema, place));
      schema.erase("$ref");
      schema = join_schemas(std::move(schema), target, place);
    }
    return schema;
  }

  Expr schema(const Json& schema, const Place& place) {
    count(place);
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
        if (name != "$ref" && !is_annotation(name)) return this->schema(resolved(schema, place), place);
      }
      return grammar_.call(rule_of(reference_of(schema, place)));
    }
    if (schema.contains("allOf")) return all_of(schema, place);
    if (schema.contains("anyOf") || schema.contains("oneOf")) return any_of(schema, place);
    if (schema.contains("enum") || schema.contains("const")) return values(schema, place);
    std::vector<Expr> parts;
    for (const std::string& type : types_of(schema, place)) parts.push_back(of_type(schema, type, place));
    return grammar_.choice(std::move(parts));
  }

  const Json& alternatives(const Json& schema, const char* keyword, const Place& place) {
    const Json& list = schema.at(keyword);
    if (!list.is_array() || list.empty())
      throw schema_error(place + "/" + keyword, "an array of schemas is needed");
    return list;
  }

  Expr all_of(Json schema, const Place& place) {
    const Json parts = alternatives(schema, "allOf", place);
    schema.erase("allOf");
    for (const Json& part : parts) {
      count(place);
      schema = join_schemas(std::move(schema), resolved(part, place), place + "/allOf");
    }
    return this->schema(schema, place);
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
    for (const Json& part : alternatives(schema, keyword, place)) {
      const Place there = place + "/" + keyword + "/" + std::to_string(number++);
      parts.push_back(others.empty()
                          ? this->schema(part, there)
                          : this->schema(join_schemas(others, resolved(part, there), there), there));
    }
    return grammar_.choice(std::move(parts));
  }

  Expr values(const Json& schema, const Place& place) {
    for (const auto& [name, value] : schema.items()) {
      if (name != "enum" && name != "const" && name != "type" && !is_annotation(name))
        throw schema_error(place, "the keyword '" + name + "' is not supported beside enum or const");
    }
    if (schema.contains("enum") && schema.contains("const"))
      throw schema_error(place, "enum and const cannot be joined");
    const bool is_const = schema.contains("const");
    if (!is_const && !schema.at("enum").is_array())
      throw schema_error(place + "/enum", "an array of values is needed");
    std::vector<Expr> parts;
    for (const Json& value : is_const ? Json::array({schema.at("const")}) : schema.at("enum")) {
      if (!schema.contains("type") || has_type(value, types_of(schema, place)))
        parts.push_back(rules_.literal(value));
    }
    return grammar_.choice(std::move(parts));
  }

  Expr of_type(const Json& schema, const std::string& type, const Place& place) {
    if (type == "object") return object(schema, place);
    if (type == "array") return array(schema, place);
    if (type == "string") return string(schema, place);
    if (type == "boolean") return rules_.boolean();
    if (type == "null") return rules_.null();
    return number(schema, type == "integer", place);
  }

  // Returns the value of a keyword that is a whole number from 0 on.
  static std::optional<int64_t> size(const Json& schema, const char* keyword, const Place& place) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return std::nullopt;
    const bool is_whole = found->is_number() && found->get<double>() >= 0 && found->get<double>() <= 1e15 &&
                          found->get<double>() == static_cast<double>(found->get<int64_t>());
    if (!is_whole) throw schema_error(place + "/" + keyword, "a whole number from 0 on is needed");
    return found->get<int64_t>();
  }
  static MemberCount sizes(const Json& schema, const char* min, const char* max, const Place& place) {
    return {size(schema, min, place).value_or(0), size(schema, max, place).value_or(Grammar::kForever)};
  }
  static bool is_empty(const MemberCount& count) {
    return count.max != Grammar::kForever && count.max < count.min;
  }

  Expr object(const Json& schema, const Place& place);
  Expr array(const Json& schema, const Place& place);
  Expr string(const Json& schema, const Place& place);
  Expr number(const Json& schema, bool is_integer, const Place& place);
  // Returns a string whose contents match a pattern.
  Expr matching(const Json& pattern, const Place& place);

  const Json& root_;
  Grammar grammar_;
  JsonRules rules_;
  std::map<Place, Grammar::Rule> references_;
  std::deque<std::pair<Place, Grammar::Rule>> open_;
  int64_t num_schemas_ = 0, depth_ = 0;
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
  const bool has_names = schema.contains("propertyNames");
  if ((has_names || !patterns.empty()) && !members.empty())
    throw schema_error(place, "propertyNames and patternProperties are not supported beside properties");
  std::vector<Expr> others;
  for (const auto& [pattern, value] : patterns.items()) {
    const Place there = place + "/patternProperties";
    others.push_back(rules_.member(matching(Json(pattern), there), this->schema(value, there)));
  }
  if (patterns.size() > 1 || (!patterns.empty() && (has_names || rest != false)))
    throw schema_error(place, "only one pattern in patternProperties is supported, without other names");
  if (rest != false) {
    Expr key = rules_.other_string(names);
    if (has_names) {
      const Json name =
          join_schemas(resolved(schema.at("propertyNames"), place), {{"type", "string"}}, place);
      key = this->schema(name, place + "/propertyNames");
    }
    others.push_back(rules_.member(key, this->schema(rest, place + "/additionalProperties")));
  }
  MemberCount count = sizes(schema, "minProperties", "maxProperties", place);
  if (is_empty(count)) return grammar_.choice({});
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

Expr SchemaReader::array(const Json& schema, const Place& place) {
  const bool has_old_items = schema.contains("items") && schema.at("items").is_array();
  const char* first = has_old_items ? "items" : "prefixItems";
  const Json prefix = schema.value(first, Json::array());
  if (!prefix.is_array()) throw schema_error(place + "/" + first, "an array is needed");
  const char* later = has_old_items ? "additionalItems" : "items";
  const Json rest = schema.value(later, Json(prefix.empty()));
  const MemberCount count = sizes(schema, "minItems", "maxItems", place);
  std::vector<Expr> items;
  for (const Json& item : prefix)
    items.push_back(this->schema(item, place + "/" + first + "/" + std::to_string(items.size())));
  if (is_empty(count) || (rest == false && count.min > std::ssize(items))) return grammar_.choice({});
  std::optional<Expr> other;
  if (rest != false) other = this->schema(rest, place + "/" + later);
  return rules_.array(items, count, other);
}

Expr SchemaReader::matching(const Json& pattern, const Place& place) {
  if (!pattern.is_string()) throw schema_error(place, "a text is needed");
  const RegexOptions options{.chars = [this](const CharSet& set) { return rules_.written(set); },
                             .is_search = true};
  try {
    return rules_.quoted(read_regex(grammar_, pattern.get<std::string>(), options));
  } catch (Error& error) {
    throw error.within("the schema at " + place);
  }
}

Expr SchemaReader::string(const Json& schema, const Place& place) {
  const bool has_size = schema.contains("minLength") || schema.contains("maxLength"),
             has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
  if (has_size + has_pattern + has_format > 1)
    throw schema_error(place, "only one of pattern, format and a length (minLength, maxLength) is supported");
  if (has_pattern) return matching(schema.at("pattern"), place + "/pattern");
  if (has_format) {
    const Json& format = schema.at("format");
    const char* pattern = format.is_string() ? format_pattern(format.get<std::string>()) : nullptr;
    if (pattern == nullptr) {
      throw schema_error(place + "/format", "this format is not supported")
          .got(format.is_string() ? format.get<std::string>() : "no text")
          .need(format_names());
    }
    return matching(pattern, place + "/format");
  }
  const MemberCount count = sizes(schema, "minLength", "maxLength", place);
  if (is_empty(count)) return grammar_.choice({});
  if (!has_size) return rules_.string();
  return rules_.quoted(grammar_.repeat(rules_.any_char(), count.min, count.max));
}

Expr SchemaReader::number(const Json& schema, bool is_integer, const Place& place) {
  if (const auto step = schema.find("multipleOf"); step != schema.end() && !(is_integer && *step == 1))
    throw schema_error(place, "the keyword 'multipleOf' is not supported");
  std::vector<DecimalBound> mins, maxs;
  const auto read = [&](const char* keyword, bool is_min, bool is_exclusive) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return;
    const auto bound = found->is_number() ? read_bound(found->dump(), is_exclusive) : std::nullopt;
    if (!bound)
      throw schema_error(place + "/" + keyword, "a number of at most 15 digits, without exponent, is needed");
    (is_min ? mins : maxs).push_back(*bound);
  };
  read("minimum", true, false);
  read("exclusiveMinimum", true, true);
  read("maximum", false, false);
  read("exclusiveMaximum", false, true);
  if (mins.empty() && maxs.empty()) return is_integer ? rules_.integer() : rules_.number();
  if (is_integer) {
    std::optional<int64_t> min, max;
    for (const DecimalBound& bound : mins)
      min = std::max(min.value_or(INT64_MIN), first_integer(bound, true));
    for (const DecimalBound& bound : maxs)
      max = std::min(max.value_or(INT64_MAX), first_integer(bound, false));
    return integers_between(grammar_, min, max);
  }
  if (mins.size() > 1 || maxs.size() > 1)
    throw schema_error(place, "a bound and an exclusive bound on one side are only supported for integers");
  const auto one = [](const std::vector<DecimalBound>& bounds) {
    return bounds.empty() ? std::nullopt : std::optional(bounds.front());
  };
  return decimals_between(grammar_, one(mins), one(maxs));
}

}  // namespace

Grammar read_json_schema(const Json& schema, bool allows_space) {
  return SchemaReader(schema, allows_space).read();
}

}  // namespace tessera::text
