// The text of a pattern or a grammar while it is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

class PatternText {
 public:
  // `name` completes the code of the errors, and `what` stands in them, as "regular expression". Throws the
  // error if the text is not UTF-8.
  PatternText(std::string_view text, const char* name, const char* what);

  bool at_end() const { return place_ == text_.size(); }
  size_t place() const { return place_; }
  std::string_view rest() const { return text_.substr(place_); }
  // Returns the next byte; 0 at the end.
  char peek() const { return at_end() ? '\0' : text_[place_]; }
  bool starts(std::string_view token) const { return rest().starts_with(token); }
  bool take(std::string_view token);
  void skip(size_t bytes) { place_ += bytes; }
  // Takes a character. Throws at the end.
  uint32_t take_char();
  // Takes digits of a hexadecimal number, exactly as many as `count`. Throws if they are not there.
  uint32_t take_hex(int count);
  // Takes a decimal number; nothing if there is none.
  std::optional<int64_t> take_number();

  // Returns an error at the current place.
  Error problem(const std::string& message) const;

 private:
  std::string_view text_;
  const char *name_, *what_;
  size_t place_ = 0;
};

// How often a part is repeated.
struct Quantifier {
  int64_t min = 1, max = 1;
};
// Takes *, +, ?, {n}, {n,} or {n,m}; nothing if the text goes on with something else. Throws for bounds in
// the wrong order.
std::optional<Quantifier> take_quantifier(PatternText& text);

// The deepest nesting of groups that is read.
inline constexpr int kMostGroups = 100;

}  // namespace tessera::text
