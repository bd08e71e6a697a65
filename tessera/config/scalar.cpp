#include "tessera/config/scalar.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace tessera::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the number without its '_' and leading '+'; nullopt when it is not decimal.
std::optional<std::string> normalise_decimal(std::string_view text) {
  constexpr size_t kMaxDigits = 400;
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  std::string out;
  size_t i = 0;
  if (text[0] == '+' || text[0] == '-') {
    if (text[0] == '-') out += '-';
    ++i;
  }
  size_t num_digits = 0;
  bool has_point = false;
  const size_t start = i;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (is_digit(c)) {
      out += c;
      ++num_digits;
    } else if (c == '_' && i > start && i + 1 < text.size() && is_digit(text[i - 1]) &&
               is_digit(text[i + 1])) {
      continue;
    } else if (c == '.' && !has_point) {
      has_point = true;
      if (num_digits == 0) out += '0';
      out += '.';
    } else {
      break;
    }
  }
  if (num_digits == 0) return std::nullopt;
  // A leading zero is refused, since 010 is eight in YAML 1.1 and ten in 1.2.
  if (text[start] == '0' && start + 1 < text.size() && is_digit(text[start + 1])) return std::nullopt;
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return std::nullopt;
    out += 'e';
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) {
      if (text[i] == '-') out += '-';
      ++i;
    }
    if (i == text.size()) return std::nullopt;
    for (; i < text.size(); ++i) {
      if (!is_digit(text[i])) return std::nullopt;
      out += text[i];
    }
  }
  return out;
}

std::optional<double> parse_special(std::string_view text) {
  const bool is_negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (!text.empty() && text[0] == '.') text.remove_prefix(1);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const char* name : {"inf", "Inf", "INF", "infinity", "Infinity"}) {
    if (text == name) return is_negative ? -infinity : infinity;
  }
  for (const char* name : {"nan", "NaN", "NAN", "Nan"}) {
    if (text == name) return std::numeric_limits<double>::quiet_NaN();
  }
  return std::nullopt;
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, bool>, 18> kNames = {{
      {"true", true},
      {"True", true},
      {"TRUE", true},
      {"yes", true},
      {"Yes", true},
      {"YES", true},
      {"on", true},
      {"On", true},
      {"ON", true},
      {"false", false},
      {"False", false},
      {"FALSE", false},
      {"no", false},
      {"No", false},
      {"NO", false},
      {"off", false},
      {"Off", false},
      {"OFF", false},
  }};
  for (const auto& [name, value] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  if (const auto special = parse_special(text)) return special;
  const auto decimal = normalise_decimal(text);
  if (!decimal) return std::nullopt;
  double value = 0.0;
  const auto result = std::from_chars(decimal->data(), decimal->data() + decimal->size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    // The number is too large or too small for a double: 1e999 is infinite, 1e-999 is zero.
    const bool is_tiny = decimal->find("e-") != std::string::npos;
    if (is_tiny) return 0.0;
    return (*decimal)[0] == '-' ? -std::numeric_limits<double>::infinity()
                                : std::numeric_limits<double>::infinity();
  }
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

ParsedInteger parse_integer(std::string_view text) {
  const auto decimal = normalise_decimal(text);
  if (!decimal) {
    const auto special = parse_special(text);
    return {special ? IntegerStatus::NotWhole : IntegerStatus::NotANumber, 0};
  }
  if (decimal->find_first_of(".e") == std::string::npos) {
    int64_t value = 0;
    const auto result = std::from_chars(decimal->data(), decimal->data() + decimal->size(), value);
    if (result.ec == std::errc::result_out_of_range) return {IntegerStatus::Overflow, 0};
    return {IntegerStatus::Ok, value};
  }
  constexpr double kMaxExact = 9007199254740992.0;  // 2^53
  const double value = *parse_number(text);
  if (std::fabs(value) > kMaxExact) return {IntegerStatus::Overflow, 0};
  if (value != std::floor(value)) return {IntegerStatus::NotWhole, 0};
  return {IntegerStatus::Ok, static_cast<int64_t>(value)};
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kPowers = "KMGT";
  std::string number(text);
  double factor = 1.0;
  if (number.ends_with('B') || number.ends_with('b')) number.pop_back();
  const bool is_binary = number.ends_with('i') || number.ends_with('I');
  if (is_binary) number.pop_back();
  if (!number.empty()) {
    const char letter = number.back() >= 'a' ? static_cast<char>(number.back() - 'a' + 'A') : number.back();
    const size_t power = kPowers.find(letter);
    if (power == std::string_view::npos && is_binary) return std::nullopt;
    if (power != std::string_view::npos) {
      factor = std::pow(is_binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
      number.pop_back();
    }
  }
  while (number.ends_with(' ')) number.pop_back();
  const double bytes = factor * parse_number(number).value_or(0.0);
  if (!(bytes >= 1.0 && bytes < 9e18)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string format_number(double value) {
  char text[40];
  const auto result = std::to_chars(text, text + sizeof text, value);
  return std::string(text, result.ptr);
}

}  // namespace tessera::config
