// The parts of JSON texts as expressions of a grammar.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/text/constraint/grammar.h"

namespace tessera::text {

// How often members of an object or an array may be repeated.
struct MemberCount {
  int64_t min = 0, max = Grammar::kForever;

  bool is_empty() const { return max != Grammar::kForever && max < min; }
};

// The grammar must outlive this object. White space is allowed where JSON has it, but little of it, so that
// an answer cannot go on with it: one space, or a new line with up to 24 spaces or tabs; or none at all.
class JsonRules {
 public:
  JsonRules(Grammar& grammar, bool allows_space);

  Grammar::Expr space() const { return space_; }
  // One character of a set, as it stands in a string: escaped in the shortest way if it has to be.
  Grammar::Expr written(const CharSet& set);
  // One character of any kind, with any escape.
  Grammar::Expr any_char() const { return any_char_; }
  // A string with some contents.
  Grammar::Expr quoted(Grammar::Expr contents);
  Grammar::Expr string() const { return string_; }
  Grammar::Expr integer() const { return integer_; }
  Grammar::Expr number() const { return number_; }
  Grammar::Expr boolean();
  Grammar::Expr null() { return grammar_.text("null"); }
  // Exactly this value, without white space.
  Grammar::Expr literal(const nlohmann::ordered_json& value);
  // Any value, and any object.
  Grammar::Expr value();
  Grammar::Expr object() { return object({}, member(string(), value()), {}); }

  // `"key": value`, with the white space behind it.
  Grammar::Expr member(Grammar::Expr key, Grammar::Expr value);
  struct Member {
    Grammar::Expr expr;  // member()
    bool is_required = true;
  };
  // An object with these members in their order, and others (member()) behind them; none if `other` is
  // nothing.
  Grammar::Expr object(const std::vector<Member>& members, std::optional<Grammar::Expr> other,
                       MemberCount others);
  // An array of the given number of items: these in their order, and others behind them; none if `other` is
  // nothing, in which case count.min must not be larger than their number.
  Grammar::Expr array(const std::vector<Grammar::Expr>& items, MemberCount count,
                      std::optional<Grammar::Expr> other);
  // An array of the given number of these items in any order, none of them twice. There are 2^items states.
  Grammar::Expr distinct_array(const std::vector<Grammar::Expr>& items, MemberCount count);
  // An array of which at least `least` items, 1 or more, are a `wanted` one, and all others an `item`.
  Grammar::Expr array_with(Grammar::Expr item, Grammar::Expr wanted, int64_t least);
  // A string that is none of these. Its escapes are the shortest ones up to where it differs from all.
  Grammar::Expr other_string(const std::vector<std::string>& names);

 private:
  // Items behind each other with commas between them; `has_some` if items stand before them.
  Grammar::Expr listed(Grammar::Expr item, MemberCount count, bool has_some);

  Grammar& grammar_;
  Grammar::Expr space_, any_char_, string_, integer_, number_;
  std::optional<Grammar::Rule> value_;
};

}  // namespace tessera::text
