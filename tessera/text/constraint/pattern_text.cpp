#include "tessera/text/constraint/pattern_text.h"

#include <algorithm>

#include "tessera/core/utf8.h"

namespace tessera::text {

PatternText::PatternText(std::string_view text, const char* name, const char* what)
    : text_(text), name_(name), what_(what) {
  if (const int64_t invalid = find_invalid_utf8(text); invalid >= 0) {
    place_ = static_cast<size_t>(invalid);
    throw problem("it is not UTF-8");
  }
}

bool PatternText::take(std::string_view token) {
  if (!starts(token)) return false;
  place_ += token.size();
  return true;
}

uint32_t PatternText::take_char() {
  if (at_end()) throw problem("it ends too early");
  const DecodedChar next = decode_char(text_.data(), place_);
  place_ += next.size;
  return next.code_point;
}

uint32_t PatternText::take_hex(int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) {
    const char c = peek();
    const bool is_digit = c >= '0' && c <= '9', is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'f';
    if (!is_digit && !is_letter) throw problem(std::to_string(count) + " hexadecimal digits are needed");
    value = value * 16 + static_cast<uint32_t>(is_digit ? c - '0' : (c | 0x20) - 'a' + 10);
    ++place_;
  }
  return value;
}

std::optional<int64_t> PatternText::take_number() {
  constexpr int64_t kLargest = 1'000'000'000;
  std::optional<int64_t> value;
  while (peek() >= '0' && peek() <= '9')
    value = std::min(kLargest, value.value_or(0) * 10 + (text_[place_++] - '0'));
  return value;
}

Error PatternText::problem(const std::string& message) const {
  return constraint_error(name_, std::string("the ") + what_ + " cannot be read at byte " +
                                     std::to_string(place_) + ": " + message);
}

std::optional<Quantifier> take_quantifier(PatternText& text) {
  if (text.take("*")) return Quantifier{0, Grammar::kForever};
  if (text.take("+")) return Quantifier{1, Grammar::kForever};
  if (text.take("?")) return Quantifier{0, 1};
  PatternText ahead = text;
  if (!ahead.take("{")) return std::nullopt;
  const auto min = ahead.take_number();
  const bool has_comma = ahead.take(",");
  const auto max = has_comma ? ahead.take_number() : min;
  if (!ahead.take("}") || (!min && !max)) return std::nullopt;
  if (max && *max < min.value_or(0)) throw text.problem("the bounds of a quantifier are in the wrong order");
  text = ahead;
  return Quantifier{min.value_or(0), max.value_or(Grammar::kForever)};
}

}  // namespace tessera::text
