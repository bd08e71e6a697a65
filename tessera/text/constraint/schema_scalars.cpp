#include "tessera/text/constraint/schema_scalars.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "tessera/text/constraint/number_ranges.h"
#include "tessera/text/constraint/regex_reader.h"
#include "tessera/text/constraint/string_formats.h"

namespace tessera::text {

using Json = SchemaJson;
using Expr = Grammar::Expr;

Expr matching_string(Grammar& grammar, JsonRules& rules, const Json& pattern, const std::string& place) {
  if (!pattern.is_string()) throw schema_error(place, "a text is needed");
  const RegexOptions options{.chars = [&rules](const CharSet& set) { return rules.written(set); },
                             .is_search = true};
  try {
    return rules.quoted(read_regex(grammar, pattern.get<std::string>(), options));
  } catch (Error& error) {
    throw error.within("the schema at " + place);
  }
}

Expr string_of_schema(Grammar& grammar, JsonRules& rules, const Json& schema, const std::string& place) {
  const bool has_size = schema.contains("minLength") || schema.contains("maxLength"),
             has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
  if (has_size + has_pattern + has_format > 1)
    throw schema_error(place, "only one of pattern, format and a length (minLength, maxLength) is supported");
  if (has_pattern) return matching_string(grammar, rules, schema.at("pattern"), place + "/pattern");
  if (has_format) {
    const Json& format = schema.at("format");
    const char* pattern = format.is_string() ? format_pattern(format.get<std::string>()) : nullptr;
    if (pattern == nullptr) {
      throw schema_error(place + "/format", "this format is not supported")
          .got(format.is_string() ? format.get<std::string>() : "no text")
          .need(format_names());
    }
    return matching_string(grammar, rules, pattern, place + "/format");
  }
  const MemberCount count = sizes_of(schema, "minLength", "maxLength", place);
  if (count.is_empty()) return grammar.choice({});
  if (!has_size) return rules.string();
  return rules.quoted(grammar.repeat(rules.any_char(), count.min, count.max));
}

Expr number_of_schema(Grammar& grammar, JsonRules& rules, const Json& schema, bool is_integer,
                      const std::string& place) {
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
  if (mins.empty() && maxs.empty()) return is_integer ? rules.integer() : rules.number();
  if (is_integer) {
    std::optional<int64_t> min, max;
    for (const DecimalBound& bound : mins)
      min = std::max(min.value_or(INT64_MIN), first_integer(bound, true));
    for (const DecimalBound& bound : maxs)
      max = std::min(max.value_or(INT64_MAX), first_integer(bound, false));
    return integers_between(grammar, min, max);
  }
  if (mins.size() > 1 || maxs.size() > 1)
    throw schema_error(place, "a bound and an exclusive bound on one side are only supported for integers");
  const auto one = [](const std::vector<DecimalBound>& bounds) {
    return bounds.empty() ? std::nullopt : std::optional(bounds.front());
  };
  return decimals_between(grammar, one(mins), one(maxs));
}

}  // namespace tessera::text
