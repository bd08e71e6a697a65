// A grammar in memory: rules of expressions over bytes, as the readers of schemas, regular expressions and
// grammars build it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/text/constraint/char_set.h"

namespace tessera::text {

// Returns the error of a constraint that is not valid or not supported; `name` completes its code.
inline Error constraint_error(std::string_view name, std::string message) {
  return {ErrorKind::Config, "CONSTRAINT-" + std::string(name), std::move(message)};
}

class Grammar {
 public:
  // Numbers of expressions and rules. Expressions may be used any number of times.
  using Expr = int32_t;
  using Rule = int32_t;

  enum class Kind { Text, Chars, Sequence, Choice, Repeat, Call };
  struct Node {
    Kind kind;
    std::string text;                               // of Text
    std::vector<std::vector<ByteRange>> sequences;  // of Chars
    std::vector<Expr> parts;                        // of Sequence and Choice; one of Repeat
    int64_t min = 0, max = 0;                       // of Repeat; max = kForever has no bound
    Rule rule = 0;                                  // of Call
  };
  static constexpr int64_t kForever = -1;

  // All functions that make an expression throw Error(Config, "CONSTRAINT-SIZE") if it is too large.
  Expr text(std::string text);
  Expr empty() { return text(""); }
  // One character of a set. An empty set matches nothing.
  Expr chars(const CharSet& set);
  Expr sequence(std::vector<Expr> parts);
  // One of the parts. Nothing matches if there is none.
  Expr choice(std::vector<Expr> parts);
  Expr repeat(Expr part, int64_t min, int64_t max = kForever);
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr call(Rule rule);

  // Adds a rule, which has to be defined later. Messages show its name.
  Rule add_rule(std::string name);
  void define(Rule rule, Expr expr);
  // Adds a rule with its definition and returns a call of it.
  Expr rule(std::string name, Expr expr);

  const Node& node(Expr expr) const { return nodes_[static_cast<size_t>(expr)]; }
  int64_t num_rules() const { return std::ssize(rules_); }
  const std::string& rule_name(Rule rule) const { return rules_[static_cast<size_t>(rule)].name; }
  std::optional<Expr> definition(Rule rule) const { return rules_[static_cast<size_t>(rule)].expr; }

  Rule root = 0;

 private:
  struct RuleEntry {
    std::string name;
    std::optional<Expr> expr;
  };

  Expr add(Node node, int64_t size);
  int64_t size(Expr expr) const { return sizes_[static_cast<size_t>(expr)]; }

  std::vector<Node> nodes_;
  std::vector<int64_t> sizes_;  // positions of an automaton that each expression takes
  std::vector<RuleEntry> rules_;
  int64_t total_ = 0;  // positions of all rules that are defined
};

}  // namespace tessera::text
