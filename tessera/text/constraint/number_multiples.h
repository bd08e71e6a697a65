// Multiples of a whole number, as expressions of a grammar.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

inline constexpr int64_t kLargestStep = 1000;

// Returns the multiples of `step`, from 1 to kLargestStep, between the bounds; an absent bound does not
// bound. Returns nothing if they are neither few enough for a list nor all above (or below) 0.
std::optional<Grammar::Expr> multiples_between(Grammar& grammar, int64_t step, std::optional<int64_t> min,
                                               std::optional<int64_t> max);

}  // namespace tessera::text
