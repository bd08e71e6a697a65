#include "tessera/text/constraint/number_multiples.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tessera::text {
namespace {

using Expr = Grammar::Expr;

constexpr int64_t kMostListed = 1000;

// Returns all multiples above 0, by a rule for each remainder that the digits so far may leave.
Expr all_multiples(Grammar& grammar, int64_t step) {
  std::vector<Grammar::Rule> rules;
  for (int64_t i = 0; i < step; ++i) rules.push_back(grammar.add_rule("multiple"));
  const auto digits_behind = [&](int64_t remainder, int64_t first) {
    std::vector<Expr> parts;
    for (int64_t digit = first; digit < 10; ++digit) {
      const auto next = static_cast<size_t>((10 * remainder + digit) % step);
      parts.push_back(grammar.sequence({grammar.text(std::to_string(digit)), grammar.call(rules[next])}));
    }
    if (first == 0 && remainder == 0) parts.push_back(grammar.empty());
    return grammar.choice(std::move(parts));
  };
  for (int64_t i = 0; i < step; ++i) grammar.define(rules[static_cast<size_t>(i)], digits_behind(i, 0));
  return digits_behind(0, 1);
}

// Returns the multiples from `min`, which is above 0.
std::optional<Expr> multiples_from(Grammar& grammar, int64_t step, int64_t min, std::optional<int64_t> max) {
  if (!max) return min <= step ? std::optional(all_multiples(grammar, step)) : std::nullopt;
  const int64_t first = (min + step - 1) / step, last = *max / step;
  if (last - first >= kMostListed) return std::nullopt;
  std::vector<Expr> parts;
  for (int64_t i = first; i <= last; ++i) parts.push_back(grammar.text(std::to_string(i * step)));
  return grammar.choice(std::move(parts));
}

}  // namespace

std::optional<Expr> multiples_between(Grammar& grammar, int64_t step, std::optional<int64_t> min,
                                      std::optional<int64_t> max) {
  const auto negated = [](std::optional<int64_t> bound) { return bound ? std::optional(-*bound) : bound; };
  std::vector<Expr> parts;
  if (!min || *min < 0) {
    const auto below =
        multiples_from(grammar, step, std::max<int64_t>(negated(max).value_or(1), 1), negated(min));
    if (!below) return std::nullopt;
    parts.push_back(grammar.sequence({grammar.text("-"), *below}));
  }
  if ((!min || *min <= 0) && (!max || *max >= 0)) parts.push_back(grammar.text("0"));
  if (!max || *max > 0) {
    const auto above = multiples_from(grammar, step, std::max<int64_t>(min.value_or(1), 1), max);
    if (!above) return std::nullopt;
    parts.push_back(*above);
  }
  return grammar.choice(std::move(parts));
}

}  // namespace tessera::text
