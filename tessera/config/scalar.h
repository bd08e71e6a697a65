// Reads one YAML scalar as a boolean or a number, with the habits of YAML 1.1 and 1.2 files alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::config {

// Reads true, false, yes, no, on or off in lower, upper or title case; nullopt for other text.
std::optional<bool> parse_bool(std::string_view text);

// Reads a decimal number: 12, -3, 1_000, 2e-5, .5, and .inf, .nan, inf, nan, which callers refuse by value.
// Octal, hexadecimal and sexagesimal forms are no numbers here and give nullopt.
std::optional<double> parse_number(std::string_view text);

// Reads a size such as "6GB" (powers of 1000), "512 MiB" (of 1024) or "1e9" (bytes), in any case; nullopt for
// other text, and for a size below a byte or beyond int64.
std::optional<int64_t> parse_bytes(std::string_view text);

// Writes a number with as few digits as tell it apart from all others.
std::string format_number(double value);

enum class IntegerStatus { Ok, NotANumber, NotWhole, Overflow };
struct ParsedInteger {
  IntegerStatus status = IntegerStatus::NotANumber;
  int64_t value = 0;
};
// Reads a whole number; 1e3 and 2.0 count as whole. Numbers beyond int64 (in the float forms beyond 2^53,
// after which they stop being exact) are Overflow.
ParsedInteger parse_integer(std::string_view text);

}  // namespace tessera::config
