#include "tessera/text/constraint/json_rules.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/utf8.h"
#include "tessera/text/constraint/regex_reader.h"

namespace tessera::text {
namespace {

using Expr = Grammar::Expr;
using Json = nlohmann::ordered_json;

// The characters that a string holds as they are.
const CharSet& plain_chars() {
  static const CharSet set = CharSet{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}.inverse();
  return set;
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A surrogate is written together with its partner.
constexpr const char* kEscapes =
    R"(\\(?:["\\/bfnrt]|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|)"
    R"([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})))";

}  // namespace

JsonRules::JsonRules(Grammar& grammar, bool allows_space) : grammar_(grammar) {
  space_ =
      allows_space ? grammar.rule("space", read_regex(grammar, "|[ ]|\\n[ \\t]{0,24}")) : grammar.empty();
  any_char_ =
      grammar.choice({grammar.chars(plain_chars()), grammar.rule("escape", read_regex(grammar, kEscapes))});
  string_ = grammar.rule("string", quoted(grammar.repeat(any_char_, 0)));
  integer_ = grammar.rule("integer", read_regex(grammar, "0|-?[1-9][0-9]*"));
  number_ = grammar.rule("number", read_regex(grammar, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?"));
}

Expr JsonRules::written(const CharSet& set) {
  std::vector<Expr> parts;
  if (const CharSet plain = set.common(plain_chars()); !plain.empty()) parts.push_back(grammar_.chars(plain));
  const CharSet escaped = set.common(plain_chars().inverse());
  for (const CharRange& range : escaped.ranges()) {
    for (uint32_t character = range.first; character <= range.last; ++character) {
      const std::string quoted = dump(std::string(1, static_cast<char>(character)));
      parts.push_back(grammar_.text(quoted.substr(1, quoted.size() - 2)));
    }
  }
  return grammar_.choice(std::move(parts));
}

Expr JsonRules::quoted(Expr contents) {
  return grammar_.sequence({grammar_.text("\""), contents, grammar_.text("\"")});
}

Expr JsonRules::boolean() { return grammar_.choice({grammar_.text("true"), grammar_.text("false")}); }

Expr JsonRules::literal(const Json& value) { return grammar_.text(dump(value)); }

Expr JsonRules::value() {
  if (!value_) {
    value_ = grammar_.add_rule("value");
    grammar_.define(*value_, grammar_.choice({string(), number(), boolean(), null(), object(),
                                              array({}, {}, grammar_.call(*value_))}));
  }
  return grammar_.call(*value_);
}

Expr JsonRules::member(Expr key, Expr value) {
  return grammar_.rule("member", grammar_.sequence({key, space_, grammar_.text(":"), space_, value, space_}));
}

Expr JsonRules::listed(Expr item, MemberCount count, bool has_some) {
  if (count.max == 0) return grammar_.empty();
  const Expr next = grammar_.sequence({grammar_.text(","), space_, item});
  if (has_some) return grammar_.repeat(next, count.min, count.max);
  const bool has_end = count.max != Grammar::kForever;
  const Expr some = grammar_.sequence({item, grammar_.repeat(next, std::max<int64_t>(count.min - 1, 0),
                                                             has_end ? count.max - 1 : count.max)});
  return count.min == 0 ? grammar_.optional(some) : some;
}

Expr JsonRules::object(const std::vector<Member>& members, std::optional<Expr> other, MemberCount others) {
  const Expr comma = grammar_.sequence({grammar_.text(","), space_});
  const auto tail = [&](bool has_some) {
    return other ? grammar_.rule("members", listed(*other, others, has_some)) : grammar_.empty();
  };
  // These may follow if members stand before them, and if none does.
  Expr later = tail(true), first = tail(false);
  for (size_t i = members.size(); i-- > 0;) {
    const auto [expr, is_required] = members[i];
    std::vector<Expr> begun = {grammar_.sequence({comma, expr, later})},
                      fresh = {grammar_.sequence({expr, later})};
    if (!is_required) {
      begun.push_back(later);
      fresh.push_back(first);
    }
    later = grammar_.rule("members", grammar_.choice(std::move(begun)));
    first = grammar_.rule("members", grammar_.choice(std::move(fresh)));
  }
  return grammar_.sequence({grammar_.text("{"), space_, first, grammar_.text("}")});
}

Expr JsonRules::array(const std::vector<Expr>& items, MemberCount count, std::optional<Expr> other) {
  const auto num_items = std::ssize(items);
  Expr later = grammar_.empty();
  if (other && (count.max == Grammar::kForever || count.max > num_items)) {
    const MemberCount others = {std::max<int64_t>(count.min - num_items, 0),
                                count.max == Grammar::kForever ? count.max : count.max - num_items};
    later = listed(grammar_.rule("item", grammar_.sequence({*other, space_})), others, num_items > 0);
  }
  for (int64_t i = num_items; i-- > 0;) {
    if (count.max != Grammar::kForever && i >= count.max) continue;
    const Expr comma = i > 0 ? grammar_.sequence({grammar_.text(","), space_}) : grammar_.empty();
    later = grammar_.sequence({comma, items[static_cast<size_t>(i)], space_, later});
    if (i >= count.min) later = grammar_.rule("items", grammar_.optional(later));
  }
  return grammar_.sequence({grammar_.text("["), space_, later, grammar_.text("]")});
}

Expr JsonRules::distinct_array(const std::vector<Expr>& items, MemberCount count) {
  const uint32_t num_items = static_cast<uint32_t>(items.size()), num_sets = uint32_t{1} << num_items;
  std::vector<Expr> listed;
  for (const Expr item : items) listed.push_back(grammar_.rule("item", grammar_.sequence({item, space_})));
  // A rule for each set of items that are there already.
  std::vector<Grammar::Rule> rules;
  for (uint32_t set = 0; set < num_sets; ++set) rules.push_back(grammar_.add_rule("items"));
  for (uint32_t set = 0; set < num_sets; ++set) {
    const int64_t size = std::popcount(set);
    const Expr comma = size > 0 ? grammar_.sequence({grammar_.text(","), space_}) : grammar_.empty();
    std::vector<Expr> parts;
    if (size >= count.min) parts.push_back(grammar_.empty());
    for (uint32_t i = 0; i < num_items && (count.max == Grammar::kForever || size < count.max); ++i) {
      const uint32_t next = set | (uint32_t{1} << i);
      if (next != set) parts.push_back(grammar_.sequence({comma, listed[i], grammar_.call(rules[next])}));
    }
    grammar_.define(rules[set], grammar_.choice(std::move(parts)));
  }
  return grammar_.sequence({grammar_.text("["), space_, grammar_.call(rules[0]), grammar_.text("]")});
}

Expr JsonRules::array_with(Expr item, Expr wanted, int64_t least) {
  const Expr comma = grammar_.sequence({grammar_.text(","), space_});
  const Expr any = grammar_.rule("item", grammar_.sequence({item, space_}));
  const Expr upto = grammar_.rule(
      "items", grammar_.sequence({grammar_.repeat(grammar_.sequence({any, comma}), 0), wanted, space_}));
  return grammar_.sequence({grammar_.text("["), space_, upto,
                            grammar_.repeat(grammar_.sequence({comma, upto}), least - 1, least - 1),
                            grammar_.repeat(grammar_.sequence({comma, any}), 0), grammar_.text("]")});
}

Expr JsonRules::other_string(const std::vector<std::string>& names) {
  if (names.empty()) return string();
  struct Branch {
    std::map<uint32_t, Branch> next;
    bool is_name = false;
  } root;
  for (const std::string& name : names) {
    Branch* branch = &root;
    for (size_t i = 0; i < name.size();) {
      const DecodedChar next = decode_char(name.data(), i);
      branch = &branch->next[next.code_point];
      i += next.size;
    }
    branch->is_name = true;
  }
  const CharSet escaped_chars = plain_chars().inverse();
  const Expr any = grammar_.rule("characters", grammar_.repeat(any_char_, 0));
  const Expr escaped = grammar_.rule("characters", grammar_.sequence({written(escaped_chars), any}));
  const auto expr_of = [&](const auto& self, const Branch& branch) -> Expr {
    CharSet plain = plain_chars(), others = escaped_chars;
    bool has_all_escaped = true;
    std::vector<Expr> parts;
    if (!branch.is_name) parts.push_back(grammar_.empty());
    for (const auto& [character, next] : branch.next) {
      const CharSet one = {{character, character}};
      has_all_escaped = has_all_escaped && plain.contains(character);
      plain = plain.common(one.inverse());
      others = others.common(one.inverse());
      parts.push_back(grammar_.sequence({written(one), self(self, next)}));
    }
    parts.push_back(grammar_.sequence({grammar_.chars(plain), any}));
    // Their rule is shared, since they are many.
    parts.push_back(has_all_escaped ? escaped : grammar_.sequence({written(others), any}));
    return grammar_.choice(std::move(parts));
  };
  return grammar_.rule("key", quoted(expr_of(expr_of, root)));
}

}  // namespace tessera::text
