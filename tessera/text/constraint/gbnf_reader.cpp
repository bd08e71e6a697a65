#include "tessera/text/constraint/gbnf_reader.h"

#include <cctype>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/utf8.h"
#include "tessera/text/constraint/pattern_text.h"

namespace tessera::text {
namespace {

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text, "GRAMMAR", "grammar") {}

  Grammar read() {
    skip_spaces();
    while (!text_.at_end()) {
      const std::string name = take_name();
      skip_spaces();
      if (name.empty() || !text_.take("::=")) throw text_.problem("a rule 'name ::= ...' is needed here");
      skip_spaces();
      const Grammar::Rule rule = rule_of(name);
      if (grammar_.definition(rule)) throw text_.problem("the rule '" + name + "' is there twice");
      grammar_.define(rule, alternatives(0));
      skip_spaces();
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) throw text_.problem("there is no rule 'root'");
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  Grammar::Rule rule_of(const std::string& name) {
    const auto [found, is_new] = rules_.try_emplace(name);
    if (is_new) found->second = grammar_.add_rule(name);
    return found->second;
  }

  void skip_spaces() {
    while (true) {
      if (text_.peek() == '#') {
        while (!text_.at_end() && text_.peek() != '\n') text_.skip(1);
      } else if (!text_.at_end() &&
                 std::string_view(" \t\r\n").find(text_.peek()) != std::string_view::npos) {
        text_.skip(1);
      } else {
        return;
      }
    }
  }
  std::string take_name() {
    const std::string_view rest = text_.rest();
    size_t size = 0;
    while (size < rest.size() && (std::isalnum(static_cast<unsigned char>(rest[size])) != 0 ||
                                  rest[size] == '_' || rest[size] == '-'))
      ++size;
    text_.skip(size);
    return std::string(rest.substr(0, size));
  }
  // Tells whether the next rule begins here.
  bool at_rule() {
    const PatternText here = text_;
    const bool has_name = !take_name().empty();
    skip_spaces();
    const bool is_rule = has_name && text_.starts("::=");
    text_ = here;
    return is_rule;
  }

  Grammar::Expr alternatives(int depth) {
    std::vector<Grammar::Expr> parts;
    do {
      skip_spaces();
      parts.push_back(sequence(depth));
    } while (text_.take("|"));
    return grammar_.choice(std::move(parts));
  }

  Grammar::Expr sequence(int depth) {
    std::vector<Grammar::Expr> parts;
    while (!text_.at_end() && text_.peek() != '|' && text_.peek() != ')' && !at_rule()) {
      Grammar::Expr part = atom(depth);
      skip_spaces();
      if (const auto times = take_quantifier(text_)) part = grammar_.repeat(part, times->min, times->max);
      parts.push_back(part);
      skip_spaces();
    }
    return grammar_.sequence(std::move(parts));
  }

  Grammar::Expr atom(int depth) {
    if (text_.take("\"")) return grammar_.text(quoted());
    if (text_.take("[")) return grammar_.chars(char_class());
    if (text_.take(".")) return grammar_.chars(CharSet::all());
    if (text_.starts("(=")) throw text_.problem("lookahead is not supported");
    if (text_.take("(")) {
      if (depth >= kMostGroups)
        throw text_.problem("groups are nested deeper than " + std::to_string(kMostGroups));
      const Grammar::Expr inner = alternatives(depth + 1);
      if (!text_.take(")")) throw text_.problem("')' is missing");
      return inner;
    }
    const std::string name = take_name();
    if (name.empty()) throw text_.problem("a text, a class, a group or the name of a rule is needed here");
    return grammar_.call(rule_of(name));
  }

  std::string quoted() {
    std::string value;
    while (!text_.take("\"")) append_utf8(value, character());
    return value;
  }

  CharSet char_class() {
    const bool is_inverse = text_.take("^");
    CharSet set;
    while (!text_.take("]")) {
      const uint32_t first = character();
      uint32_t last = first;
      if (PatternText ahead = text_; ahead.take("-") && ahead.peek() != ']') {
        text_ = ahead;
        last = character();
      }
      if (last < first) throw text_.problem("this is no range of characters");
      set.add({first, last});
    }
    return is_inverse ? set.inverse() : set;
  }

  uint32_t character() {
    const uint32_t c = text_.take_char();
    if (c != '\\') return c;
    uint32_t character = text_.take_char();
    switch (character) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'b': return '\b';
      case '0': return 0;
      case 'x': character = text_.take_hex(2); break;
      case 'u': character = text_.take_hex(4); break;
      case 'U': character = text_.take_hex(8); break;
      default:
        if (character < 0x80 && std::isalnum(static_cast<int>(character)) != 0)
          throw text_.problem("this escape is not known");
    }
    if (character > 0x10ffff || CharSet{{character, character}}.empty())
      throw text_.problem("this is no character");
    return character;
  }

  PatternText text_;
  Grammar grammar_;
  std::map<std::string, Grammar::Rule> rules_;
};

}  // namespace

Grammar read_gbnf(std::string_view text) { return GbnfReader(text).read(); }

}  // namespace tessera::text
