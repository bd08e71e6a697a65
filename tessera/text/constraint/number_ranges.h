// Numbers between bounds, as expressions of a grammar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

// A bound of a range, in decimal notation without an exponent.
struct DecimalBound {
  bool is_negative = false;
  int64_t whole = 0;
  std::string fraction;  // digits behind the point, without zeros at the end
  bool is_exclusive = false;
};

// Reads a number of JSON as a bound. Returns nothing if it has an exponent or more digits than are taken.
std::optional<DecimalBound> read_bound(const std::string& number, bool is_exclusive);

// Returns whole numbers from `min` to `max`, without zeros before them. Bounds that are absent do not bound.
Grammar::Expr integers_between(Grammar& grammar, std::optional<int64_t> min, std::optional<int64_t> max);
// Returns decimal numbers without exponents.
Grammar::Expr decimals_between(Grammar& grammar, const std::optional<DecimalBound>& min,
                               const std::optional<DecimalBound>& max);
// Returns the least (or largest) whole number within a bound.
int64_t first_integer(const DecimalBound& bound, bool is_min);

}  // namespace tessera::text
