#include "tessera/text/constraint/schema_scalars.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "tessera/text/constraint/number_multiples.h"
#include "tessera/text/constraint/number_ranges.h"
#include "tessera/text/constraint/regex_reader.h"
#include "tessera/text/constraint/string_formats.h"

namespace tessera::text {

using Json = SchemaJson;
using Expr = Grammar::Expr;

namespace {

// Returns n if the value of multipleOf is 10^-n, as 0.01, for an n above 0.
std::optional<int64_t> decimals_of(const Json& step) {
  const std::string text = step.is_number() ? step.dump() : "";
  const bool is_power = text.starts_with("0.") && text.find_first_not_of("0.") == text.size() - 1;
  return is_power && text.back() == '1' ? std::optional(std::ssize(text) - 2) : std::nullopt;
}

// Returns the value of multipleOf if it is a whole number.
int64_t step_of(const Json& step, const std::string& place) {
  const double value = step.is_number() ? step.get<double>() : 0.0;
  if (value >= 1.0 && value <= static_cast<double>(kLargestStep) && value == std::trunc(value))
    return static_cast<int64_t>(value);
  throw schema_error(place + "/multipleOf", "a whole number from 1 to " + std::to_string(kLargestStep) +
                                                ", or 0.1, 0.01, ..., is needed");
}

// Returns the whole numbers between the bounds, but for those that are excluded.
Expr integers_without(Grammar& grammar, JsonRules& rules, const Json& excluded, std::optional<int64_t> min,
                      std::optional<int64_t> max, const std::string& place) {
  if (excluded.empty() && !min && !max) return rules.integer();
  std::set<int64_t> gaps;
  for (const Json& value : excluded) {
    const double number = value.get<double>();
    if (std::abs(number) > 1e15)
      throw schema_error(place + "/not", "a number of at most 15 digits is needed");
    gaps.insert(static_cast<int64_t>(number));
  }
  std::vector<Expr> parts;
  for (const int64_t gap : gaps) {
    if ((min && gap < *min) || (max && gap > *max)) continue;
    if (!min || *min < gap) parts.push_back(integers_between(grammar, min, gap - 1));
    min = gap + 1;
  }
  if (!min || !max || *min <= *max) parts.push_back(integers_between(grammar, min, max));
  return grammar.choice(std::move(parts));
}

// Returns numbers with at most this many digits behind the point.
Expr decimals_with(Grammar& grammar, int64_t digits, const std::vector<DecimalBound>& mins,
                   const std::vector<DecimalBound>& maxs, const std::string& place) {
  const bool is_from_0 =
      mins.size() == 1 && mins[0].whole == 0 && mins[0].fraction.empty() && !mins[0].is_exclusive;
  if (!maxs.empty() || (!mins.empty() && !is_from_0))
    throw schema_error(place + "/multipleOf",
                       "beside digits behind the point, the only bound may be minimum 0");
  const std::string sign = mins.empty() ? "-?" : "";
  return read_regex(grammar, sign + "(0|[1-9][0-9]*)(\\.[0-9]{1," + std::to_string(digits) + "})?");
}

}  // namespace

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

Expr string_of_schema(Grammar& grammar, JsonRules& rules, const Json& schema, const Json& excluded,
                      const std::string& place) {
  const bool has_size = schema.contains("minLength") || schema.contains("maxLength"),
             has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
  if (has_size + has_pattern + has_format > 1)
    throw schema_error(place, "only one of pattern, format and a length (minLength, maxLength) is supported");
  if (!excluded.empty()) {
    if (has_size || has_pattern || has_format)
      throw schema_error(place + "/not",
                         "strings are only left out of those without pattern, format or length");
    return rules.other_string(excluded.get<std::vector<std::string>>());
  }
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
                      const Json& excluded, const std::string& place) {
  const auto step = schema.find("multipleOf");
  const std::optional<int64_t> digits = step == schema.end() ? std::nullopt : decimals_of(*step);
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
  if (is_integer || (step != schema.end() && !digits)) {
    std::optional<int64_t> min, max;
    for (const DecimalBound& bound : mins)
      min = std::max(min.value_or(INT64_MIN), first_integer(bound, true));
    for (const DecimalBound& bound : maxs)
      max = std::min(max.value_or(INT64_MAX), first_integer(bound, false));
    const int64_t size = step == schema.end() || digits ? 1 : step_of(*step, place);
    if (size == 1) return integers_without(grammar, rules, excluded, min, max, place);
    if (!excluded.empty()) throw schema_error(place, "not and multipleOf cannot be joined");
    if (const auto multiples = multiples_between(grammar, size, min, max)) return *multiples;
    throw schema_error(place + "/multipleOf",
                       "beside bounds it needs at most 1000 multiples on a side, or all from 0 on");
  }
  if (!excluded.empty())
    throw schema_error(place + "/not", "single values are not left out of numbers that are no integers");
  if (digits) return decimals_with(grammar, *digits, mins, maxs, place);
  if (mins.empty() && maxs.empty()) return rules.number();
  if (mins.size() > 1 || maxs.size() > 1)
    throw schema_error(place, "a bound and an exclusive bound on one side are only supported for integers");
  const auto one = [](const std::vector<DecimalBound>& bounds) {
    return bounds.empty() ? std::nullopt : std::optional(bounds.front());
  };
  return decimals_between(grammar, one(mins), one(maxs));
}

}  // namespace tessera::text
