#include "tessera/text/constraint/number_ranges.h"

#include <algorithm>
#include <vector>

namespace tessera::text {
namespace {

using Expr = Grammar::Expr;

constexpr size_t kMostDigits = 15;

Expr digit(Grammar& grammar, char first, char last) {
  return grammar.chars({{static_cast<unsigned char>(first), static_cast<unsigned char>(last)}});
}
Expr digits(Grammar& grammar, int64_t min, int64_t max = Grammar::kForever) {
  return grammar.repeat(digit(grammar, '0', '9'), min, max);
}

// Returns digits from `low` to `high`, which have equally many.
Expr digits_between(Grammar& grammar, const std::string& low, const std::string& high) {
  const auto is_all = [](const std::string& text, char c) {
    return text.find_first_not_of(c) == std::string::npos;
  };
  if (is_all(low, '0') && is_all(high, '9')) return digits(grammar, std::ssize(low), std::ssize(low));
  const std::string rest_low = low.substr(1), rest_high = high.substr(1);
  if (low[0] == high[0])
    return grammar.sequence({digit(grammar, low[0], low[0]), digits_between(grammar, rest_low, rest_high)});
  const std::string nines(rest_low.size(), '9'), zeros(rest_low.size(), '0');
  std::vector<Expr> parts;
  char first = low[0], last = high[0];
  if (!is_all(rest_low, '0')) {
    parts.push_back(
        grammar.sequence({digit(grammar, first, first), digits_between(grammar, rest_low, nines)}));
    ++first;
  }
  if (!is_all(rest_high, '9')) {
    parts.push_back(
        grammar.sequence({digit(grammar, last, last), digits_between(grammar, zeros, rest_high)}));
    --last;
  }
  if (first <= last) {
    parts.push_back(grammar.sequence(
        {digit(grammar, first, last), digits(grammar, std::ssize(zeros), std::ssize(zeros))}));
  }
  return grammar.choice(std::move(parts));
}

// Returns whole numbers from `min` on, neither of them negative.
Expr magnitudes(Grammar& grammar, int64_t min, std::optional<int64_t> max) {
  std::vector<Expr> parts;
  std::string low = std::to_string(min);
  while (!max || low.size() <= std::to_string(*max).size()) {
    const std::string nines(low.size(), '9');
    const bool is_last = max && std::to_string(*max).size() == low.size();
    if (is_last && *max < min) break;
    parts.push_back(digits_between(grammar, low, is_last ? std::to_string(*max) : nines));
    low = "1" + std::string(low.size(), '0');
    if (max) continue;
    parts.push_back(grammar.sequence({digit(grammar, '1', '9'), digits(grammar, std::ssize(nines))}));
    break;
  }
  return grammar.choice(std::move(parts));
}

// A fraction has begun with the digits of a bound; these digits of the bound are left.
struct Rest {
  std::string digits;
  bool is_exclusive = false;
};
Rest behind(const Rest& rest) {
  return {rest.digits.empty() ? "" : rest.digits.substr(1), rest.is_exclusive};
}

// Returns the digits of a fraction; at least one if `needs_one`.
Expr fraction_digits(Grammar& grammar, std::optional<Rest> low, const std::optional<Rest>& high,
                     bool needs_one) {
  if (low && low->digits.empty() && !low->is_exclusive) low.reset();
  const int64_t least = needs_one ? 1 : 0;
  if (high && high->digits.empty()) {
    if (low || high->is_exclusive) return grammar.choice({});
    return grammar.repeat(grammar.text("0"), least);
  }
  if (!low && !high) return digits(grammar, least);
  if (low && low->digits.empty() && !high) {
    return grammar.sequence(
        {grammar.repeat(grammar.text("0"), 0), digit(grammar, '1', '9'), digits(grammar, 0)});
  }
  const char first = low && !low->digits.empty() ? low->digits[0] : '0', last = high ? high->digits[0] : '9';
  if (first > last) return grammar.choice({});
  std::vector<Expr> parts;
  if (!needs_one && !low) parts.push_back(grammar.empty());
  const auto add = [&](char from, char to, const std::optional<Rest>& new_low,
                       const std::optional<Rest>& new_high) {
    if (from <= to)
      parts.push_back(
          grammar.sequence({digit(grammar, from, to), fraction_digits(grammar, new_low, new_high, false)}));
  };
  const auto next_low = low ? std::optional(behind(*low)) : std::nullopt,
             next_high = high ? std::optional(behind(*high)) : std::nullopt;
  if (low && high && first == last) {
    add(first, first, next_low, next_high);
  } else {
    if (low) add(first, first, next_low, std::nullopt);
    if (high) add(last, last, std::nullopt, next_high);
    add(static_cast<char>(low ? first + 1 : first), static_cast<char>(high ? last - 1 : last), std::nullopt,
        std::nullopt);
  }
  return grammar.choice(std::move(parts));
}

// Returns a point with digits, or nothing, behind a whole number that equals that of the bounds.
Expr fraction(Grammar& grammar, const std::optional<Rest>& low, const std::optional<Rest>& high) {
  std::vector<Expr> parts;
  const bool may_be_zero = (!low || (low->digits.empty() && !low->is_exclusive)) &&
                           (!high || !high->digits.empty() || !high->is_exclusive);
  if (may_be_zero) parts.push_back(grammar.empty());
  parts.push_back(
      grammar.sequence({grammar.text("."), fraction_digits(grammar, low, high, /*needs_one=*/true)}));
  return grammar.choice(std::move(parts));
}

// Returns decimal numbers that are not negative.
Expr decimal_magnitudes(Grammar& grammar, const DecimalBound& min, const std::optional<DecimalBound>& max) {
  const Rest low = {min.fraction, min.is_exclusive};
  std::optional<Rest> high;
  if (max) high = Rest{max->fraction, max->is_exclusive};
  const auto whole = [&](const DecimalBound& bound) { return grammar.text(std::to_string(bound.whole)); };
  if (max && max->whole < min.whole) return grammar.choice({});
  if (max && max->whole == min.whole) return grammar.sequence({whole(min), fraction(grammar, low, high)});
  std::vector<Expr> parts = {grammar.sequence({whole(min), fraction(grammar, low, std::nullopt)})};
  const auto last = max ? std::optional(max->whole - 1) : std::nullopt;
  if (!last || *last > min.whole) {
    parts.push_back(grammar.sequence(
        {magnitudes(grammar, min.whole + 1, last), fraction(grammar, std::nullopt, std::nullopt)}));
  }
  if (max) parts.push_back(grammar.sequence({whole(*max), fraction(grammar, std::nullopt, high)}));
  return grammar.choice(std::move(parts));
}

}  // namespace

std::optional<DecimalBound> read_bound(const std::string& number, bool is_exclusive) {
  DecimalBound bound{.is_negative = number.starts_with('-'), .is_exclusive = is_exclusive};
  const std::string magnitude = number.substr(bound.is_negative ? 1 : 0);
  const size_t point = std::min(magnitude.find('.'), magnitude.size());
  if (magnitude.find_first_not_of("0123456789.") != std::string::npos || point > kMostDigits ||
      magnitude.size() - point > kMostDigits + 1)
    return std::nullopt;
  bound.whole = std::stoll(magnitude.substr(0, point));
  if (point < magnitude.size()) bound.fraction = magnitude.substr(point + 1);
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  if (bound.whole == 0 && bound.fraction.empty()) bound.is_negative = false;
  return bound;
}

int64_t first_integer(const DecimalBound& bound, bool is_min) {
  const int64_t whole = bound.is_negative ? -bound.whole : bound.whole;
  if (bound.fraction.empty()) return whole + (bound.is_exclusive ? (is_min ? 1 : -1) : 0);
  // `whole` is the bound without its fraction, rounded towards zero.
  if (is_min) return bound.is_negative ? whole : whole + 1;
  return bound.is_negative ? whole - 1 : whole;
}

Expr integers_between(Grammar& grammar, std::optional<int64_t> min, std::optional<int64_t> max) {
  std::vector<Expr> parts;
  if (!min || *min < 0) {
    const int64_t least = max && *max < 0 ? -*max : 1;
    std::optional<int64_t> most;
    if (min) most = -*min;
    parts.push_back(grammar.sequence({grammar.text("-"), magnitudes(grammar, least, most)}));
  }
  if (!max || *max >= 0) parts.push_back(magnitudes(grammar, std::max<int64_t>(min.value_or(0), 0), max));
  return grammar.choice(std::move(parts));
}

Expr decimals_between(Grammar& grammar, const std::optional<DecimalBound>& min,
                      const std::optional<DecimalBound>& max) {
  std::vector<Expr> parts;
  const DecimalBound zero, above_zero{.is_exclusive = true};
  if (!min || min->is_negative) {
    parts.push_back(grammar.sequence(
        {grammar.text("-"), decimal_magnitudes(grammar, max && max->is_negative ? *max : above_zero, min)}));
  }
  if (!max || !max->is_negative)
    parts.push_back(decimal_magnitudes(grammar, min && !min->is_negative ? *min : zero, max));
  return grammar.choice(std::move(parts));
}

}  // namespace tessera::text
