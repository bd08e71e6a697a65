#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tessera/text/chat_template/filters.h"
#include "tessera/text/chat_template/json_text.h"
#include "tessera/text/chat_template/methods.h"
#include "tessera/text/chat_template/operators.h"

namespace tessera::text::jinja {

namespace {

// Returns str(value), with which most text filters begin.
Value as_string(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    runtime.charge_text(value.text());
    return value;
  }
  return Value::string(runtime, to_text(runtime, value));
}

Value by_method(Runtime& runtime, const Value& value, std::string_view method, Arguments arguments = {}) {
  const Value text = as_string(runtime, value);
  return call_method(runtime, text, find_method(text, method), arguments);
}

Value trim(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  Arguments chars;
  if (arguments.get(0)) chars.positional.push_back(*arguments.get(0));
  return by_method(runtime, value, "strip", chars);
}

Value upper(Runtime& runtime, const Value& value, const BoundArguments&) {
  return by_method(runtime, value, "upper");
}
Value lower(Runtime& runtime, const Value& value, const BoundArguments&) {
  return by_method(runtime, value, "lower");
}
Value capitalize(Runtime& runtime, const Value& value, const BoundArguments&) {
  return by_method(runtime, value, "capitalize");
}
Value title(Runtime& runtime, const Value& value, const BoundArguments&) {
  const Value text = as_string(runtime, value);
  charge_case(runtime, text.text());
  return Value::string(runtime, title_filter(text.text()));
}
Value string(Runtime& runtime, const Value& value, const BoundArguments&) {
  return as_string(runtime, value);
}

Value replace_filter(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  Arguments given;
  given.positional = {as_string(runtime, *arguments.get(0)), as_string(runtime, *arguments.get(1))};
  if (arguments.get(2) && !arguments.get(2)->is(Kind::None)) given.positional.push_back(*arguments.get(2));
  return by_method(runtime, value, "replace", given);
}

Value escape(Runtime& runtime, const Value& value, const BoundArguments&) {
  const Value text = as_string(runtime, value);
  runtime.charge_walk(text.bytes());
  Text out;
  size_t hint = 0;
  for (size_t at = 0; at < text.text().size(); ++at) {
    const char c = text.bytes()[at];
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '\'' ? "&#39;"
                                    : c == '"'  ? "&#34;"
                                                : std::string_view(&c, 1);
    out.append(entity, text.text().origin_at(at, hint));
  }
  return Value::string(runtime, std::move(out));
}

// Indents every line but the first (that one too if `first`); empty lines only if `blank`.
Value indent(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (!value.is_string()) runtime.fail("'indent' needs a string, got " + std::string(type_name(value)));
  std::string margin;
  if (arguments.get(0) && arguments.get(0)->is_string()) {
    margin = arguments.get(0)->bytes();
  } else {
    const int64_t width = std::max<int64_t>(arguments.integer(0, 4), 0);
    runtime.check_size(static_cast<size_t>(width));
    margin.assign(static_cast<size_t>(width), ' ');
  }
  const bool first = arguments.flag(1, false), blank = arguments.flag(2, false);
  runtime.charge_text(value.text());
  runtime.charge_walk(value.bytes());
  Text text = value.text();
  runtime.charge(static_cast<int64_t>(count_line_ends(text.bytes)));
  text.append("\n");
  const std::vector<Text> lines = split_lines(text, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(margin);
    out.append(lines[i]);
    runtime.charge_bytes(margin.size());
  }
  return Value::string(runtime, std::move(out));
}

Value tojson(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments.flag(0, false);
  const Value* indent = arguments.get(1);
  if (indent && !indent->is(Kind::None)) {
    style.pretty = true;
    style.item_separator = ",";
    if (indent->is_string()) {
      style.indent = indent->bytes();
    } else {
      const int64_t width = std::max<int64_t>(arguments.integer(1, 0), 0);
      runtime.check_size(static_cast<size_t>(width));
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (arguments.get(2) && !arguments.get(2)->is(Kind::None)) {
    const std::vector<Value> both = iterate(runtime, *arguments.get(2));
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string()) {
      runtime.fail("separators of tojson are two strings");
    }
    style.item_separator = both[0].bytes();
    style.key_separator = both[1].bytes();
  }
  style.sort_keys = arguments.flag(3, false);
  return Value::string(runtime, to_json(runtime, value, style));
}

Value format(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    runtime.fail("format takes values or names, not both");
  }
  Value values;
  if (arguments.keyword.empty()) {
    values = Value::sequence(runtime, Kind::Tuple, arguments.positional);
  } else {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [name, item] : arguments.keyword)
      entries.emplace_back(Value::string(runtime, name), item);
    values = Value::dict(runtime, std::move(entries));
  }
  return Value::string(runtime, format_percent(runtime, as_string(runtime, value).text(), values));
}

// Parses the texts that Python's int(text, base) accepts, apart from numbers of more than 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int base) {
  const std::string stripped = strip(Text(text), std::nullopt, true, true).bytes;
  std::string_view digits = stripped;
  const bool minus = digits.starts_with('-');
  if (minus || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    const int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      digits.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  std::string plain;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] != '_') {
      plain.push_back(digits[i]);
    } else if (i == 0 || i + 1 == digits.size() || digits[i + 1] == '_') {
      return std::nullopt;
    }
  }
  if (plain.empty() || plain[0] == '-') return std::nullopt;
  if (minus) plain.insert(0, 1, '-');
  int64_t value = 0;
  const auto [end, status] = std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
  if (status != std::errc{} || end != plain.data() + plain.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  std::string plain = strip(Text(text), std::nullopt, true, true).bytes;
  // strtod also accepts hexadecimal numbers and nan(...), which Python does not.
  if (plain.empty() || plain.find_first_of("xXpP(") != std::string::npos ||
      std::isspace(static_cast<unsigned char>(plain[0]))) {
    return std::nullopt;
  }
  std::erase(plain, '_');
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (end != plain.c_str() + plain.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> whole_part(Runtime& runtime, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) >= 9.2e18) runtime.fail_limit("a whole number outside of 64 bits");
  return static_cast<int64_t>(value);
}

Value to_int(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  std::optional<int64_t> result;
  const int64_t base = arguments.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) runtime.fail("int() base must be from 2 to 36, or 0");
  if (value.is_string()) {
    runtime.charge_walk(value.bytes());
    result = parse_integer(value.bytes(), static_cast<int>(base));
    if (!result) {
      if (const std::optional<double> number = parse_float(value.bytes()))
        result = whole_part(runtime, *number);
    }
  } else if (value.is(Kind::Float)) {
    result = whole_part(runtime, value.real());
  } else if (value.is_integral()) {
    result = value.integer();
  }
  if (result) return Value::integer(*result);
  return arguments.get(0) ? *arguments.get(0) : Value::integer(0);
}

Value to_float(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  if (value.is_number()) return Value::real(value.real());
  if (value.is_string()) {
    runtime.charge_walk(value.bytes());
    if (const std::optional<double> number = parse_float(value.bytes())) return Value::real(*number);
  }
  return arguments.get(0) ? *arguments.get(0) : Value::real(0);
}

Value absolute(Runtime& runtime, const Value& value, const BoundArguments&) {
  if (value.is(Kind::Float)) return Value::real(std::fabs(value.real()));
  if (value.is_integral())
    return value.integer() < 0 ? negative(runtime, value) : Value::integer(value.integer());
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  runtime.fail("bad operand type for abs(): '" + std::string(type_name(value)) + "'");
}

// Rounds half to even, as Python's round(). With a method, rounds up or down instead and gives a float.
Value round_number(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  if (!value.is_number()) runtime.fail("'" + std::string(type_name(value)) + "' cannot be rounded");
  const int64_t precision = arguments.integer(0, 0);
  const std::string method = arguments.get(1) ? arguments.text(1).bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    runtime.fail("round knows the methods common, ceil and floor, got '" + excerpt(method) + "'");
  }
  if (precision < -300 || precision > 300) runtime.fail_limit("a rounding to more than 300 places");
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = value.real() * scale;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (value.is_integral()) {
    if (precision >= 0) return Value::integer(value.integer());
    if (precision < -18) return Value::integer(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; ++i) unit *= 10;
    const int64_t rest = ((value.integer() % unit) + unit) % unit;
    int64_t rounded = value.integer() - rest;
    if (rest * 2 > unit || (rest * 2 == unit && (rounded / unit) % 2 != 0)) rounded += unit;
    return Value::integer(rounded);
  }
  if (!std::isfinite(value.real())) return value;
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return Value::real(std::nearbyint(value.real() / unit) * unit);
  }
  char buffer[1024];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value.real());
  return Value::real(std::strtod(buffer, nullptr));
}

Value otherwise(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const bool missing = value.is_undefined() || (arguments.flag(1, false) && !truth(value));
  if (!missing) return value;
  return arguments.get(0) ? *arguments.get(0) : Value::string(runtime, Text());
}

}  // namespace

const std::vector<FilterEntry>& text_filters() {
  static const std::vector<FilterEntry> kFilters = {
      {"trim", {"chars"}, 0, trim},
      {"upper", {}, 0, upper},
      {"lower", {}, 0, lower},
      {"capitalize", {}, 0, capitalize},
      {"title", {}, 0, title},
      {"string", {}, 0, string},
      {"safe", {}, 0, string},
      {"escape", {}, 0, escape},
      {"e", {}, 0, escape},
      {"forceescape", {}, 0, escape},
      {"replace", {"old", "new", "count"}, 2, replace_filter},
      {"indent", {"width", "first", "blank"}, 0, indent},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, tojson},
      {"format", {}, 0, nullptr, format},
      {"int", {"default", "base"}, 0, to_int},
      {"float", {"default"}, 0, to_float},
      {"abs", {}, 0, absolute},
      {"round", {"precision", "method"}, 0, round_number},
      {"default", {"default_value", "boolean"}, 0, otherwise},
      {"d", {"default_value", "boolean"}, 0, otherwise},
  };
  return kFilters;
}

}  // namespace tessera::text::jinja
