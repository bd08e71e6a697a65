#include "tessera/text/constraint/grammar.h"

#include <algorithm>
#include <utility>

namespace tessera::text {
namespace {

constexpr int64_t kMostPositions = int64_t{1} << 17, kMostExpressions = int64_t{1} << 18;

void check_size(int64_t size, int64_t most) {
  if (size <= most) return;
  throw constraint_error("SIZE", "the constraint is too large")
      .got(std::to_string(size) + " places")
      .need("at most " + std::to_string(most))
      .hint("smaller bounds of repetitions, or fewer alternatives, make it smaller");
}

}  // namespace

Grammar::Expr Grammar::add(Node node, int64_t size) {
  check_size(size, kMostPositions);
  check_size(std::ssize(nodes_) + 1, kMostExpressions);
  nodes_.push_back(std::move(node));
  sizes_.push_back(size);
  return static_cast<Expr>(nodes_.size() - 1);
}

Grammar::Expr Grammar::text(std::string text) {
  const auto size = std::ssize(text);
  return add({.kind = Kind::Text, .text = std::move(text)}, size);
}

Grammar::Expr Grammar::chars(const CharSet& set) {
  Node node{.kind = Kind::Chars, .sequences = utf8_of(set)};
  int64_t size = 1;
  for (const auto& sequence : node.sequences) size += std::ssize(sequence) - 1;
  return add(std::move(node), size);
}

Grammar::Expr Grammar::sequence(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts.front();
  int64_t all = 0;
  for (const Expr part : parts) all += size(part);
  return add({.kind = Kind::Sequence, .parts = std::move(parts)}, all);
}

Grammar::Expr Grammar::choice(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts.front();
  int64_t all = 1;
  for (const Expr part : parts) all += size(part);
  return add({.kind = Kind::Choice, .parts = std::move(parts)}, all);
}

Grammar::Expr Grammar::repeat(Expr part, int64_t min, int64_t max) {
  if (min == 1 && max == 1) return part;
  if (max == kForever && min > 0) return sequence({repeat(part, min, min), repeat(part, 0)});
  // Many copies of a large part become calls of one.
  constexpr int64_t kFew = 4;
  if (max > kFew && size(part) > 2) part = rule("repeated", part);
  check_size(max, kMostPositions);
  const int64_t copies = std::max<int64_t>(max, 1);
  return add({.kind = Kind::Repeat, .parts = {part}, .min = min, .max = max}, copies * (size(part) + 1));
}

Grammar::Expr Grammar::call(Rule rule) { return add({.kind = Kind::Call, .rule = rule}, 1); }

Grammar::Rule Grammar::add_rule(std::string name) {
  check_size(num_rules() + 1, kMostPositions);
  rules_.push_back({std::move(name), std::nullopt});
  return static_cast<Rule>(rules_.size() - 1);
}

void Grammar::define(Rule rule, Expr expr) {
  total_ += size(expr) + 2;
  check_size(total_, kMostPositions);
  rules_[static_cast<size_t>(rule)].expr = expr;
}

Grammar::Expr Grammar::rule(std::string name, Expr expr) {
  const Rule made = add_rule(std::move(name));
  define(made, expr);
  return call(made);
}

}  // namespace tessera::text
