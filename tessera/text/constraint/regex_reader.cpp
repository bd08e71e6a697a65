#include "tessera/text/constraint/regex_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "tessera/text/constraint/pattern_text.h"

namespace tessera::text {
namespace {

const CharSet& digits() {
  static const CharSet set = {{'0', '9'}};
  return set;
}
const CharSet& word_chars() {
  static const CharSet set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
const CharSet& spaces() {
  static const CharSet set = {{'\t', '\r'}, {' ', ' '}};
  return set;
}

class RegexReader {
 public:
  RegexReader(Grammar& grammar, std::string_view pattern, const RegexOptions& options)
      : grammar_(grammar), options_(options), text_(pattern, "REGEX", "regular expression") {}

  Grammar::Expr read() {
    const Grammar::Expr all = alternatives(0);
    if (!text_.at_end()) throw text_.problem("')' closes no group");
    return all;
  }

 private:
  Grammar::Expr chars(const CharSet& set) {
    return options_.chars ? options_.chars(set) : grammar_.chars(set);
  }

  Grammar::Expr alternatives(int depth) {
    std::vector<Grammar::Expr> parts;
    do {
      parts.push_back(depth == 0 ? whole() : sequence(depth));
    } while (text_.take("|"));
    return grammar_.choice(std::move(parts));
  }

  // Reads an alternative that is in no group, with its anchors.
  Grammar::Expr whole() {
    const bool is_start = text_.take("^");
    Grammar::Expr expr = sequence(0);
    const bool is_end = text_.take("$");
    if (is_end && !text_.at_end() && text_.peek() != '|' && text_.peek() != ')')
      throw text_.problem("an anchor is only supported at an end of the whole");
    if (!options_.is_search) return expr;
    const Grammar::Expr any = grammar_.repeat(chars(CharSet::all()), 0);
    return grammar_.sequence({is_start ? grammar_.empty() : any, expr, is_end ? grammar_.empty() : any});
  }

  Grammar::Expr sequence(int depth) {
    std::vector<Grammar::Expr> parts;
    while (!text_.at_end() && text_.peek() != '|' && text_.peek() != ')') {
      if (text_.peek() == '^' || text_.peek() == '$') {
        if (depth == 0 && text_.peek() == '$') break;
        throw text_.problem("an anchor is only supported at an end of the whole");
      }
      Grammar::Expr part = atom(depth);
      if (const auto times = take_quantifier(text_)) {
        text_.take("?");  // a lazy one matches the same texts
        if (text_.peek() == '+') throw text_.problem("possessive quantifiers are not supported");
        part = grammar_.repeat(part, times->min, times->max);
      }
      parts.push_back(part);
    }
    return grammar_.sequence(std::move(parts));
  }

  Grammar::Expr atom(int depth) {
    if (text_.take("(")) return group(depth + 1);
    if (text_.take("[")) return chars(char_class());
    if (text_.take(".")) return chars(CharSet{{'\n', '\n'}}.inverse());
    if (text_.take("\\")) return chars(escape(false));
    const char next = text_.peek();
    if (next == '*' || next == '+' || next == '?') throw text_.problem("there is nothing to repeat");
    const uint32_t character = text_.take_char();
    return chars({{character, character}});
  }

  Grammar::Expr group(int depth) {
    if (depth > kMostGroups)
      throw text_.problem("groups are nested deeper than " + std::to_string(kMostGroups));
    if (text_.take("?")) {
      if (text_.starts("=") || text_.starts("!") || text_.starts("<=") || text_.starts("<!"))
        throw text_.problem("lookahead and lookbehind are not supported");
      if (text_.starts("P=")) throw text_.problem("backreferences are not supported");
      if (text_.take("P<") || text_.take("<")) {
        while (text_.peek() != '>') text_.take_char();
        text_.take(">");
      } else if (!text_.take(":")) {
        throw text_.problem("groups with flags and other extensions are not supported");
      }
    }
    const Grammar::Expr inner = alternatives(depth);
    if (!text_.take(")")) throw text_.problem("')' is missing");
    return inner;
  }

  CharSet char_class() {
    const bool is_inverse = text_.take("^");
    CharSet set;
    for (bool is_first = true; is_first || text_.peek() != ']'; is_first = false) {
      const CharSet from = class_item();
      PatternText ahead = text_;
      if (!ahead.take("-") || ahead.peek() == ']') {
        set.add(from);
        continue;
      }
      text_ = ahead;
      const CharSet to = class_item();
      const bool are_chars = is_one(from) && is_one(to);
      if (!are_chars || to.ranges().front().first < from.ranges().front().first)
        throw text_.problem("this is no range of characters");
      set.add({from.ranges().front().first, to.ranges().front().first});
    }
    text_.take("]");
    return is_inverse ? set.inverse() : set;
  }
  static bool is_one(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges().front().first == set.ranges().front().last;
  }
  CharSet class_item() {
    if (text_.take("\\")) return escape(true);
    const uint32_t character = text_.take_char();
    return {{character, character}};
  }

  CharSet escape(bool in_class) {
    const uint32_t c = text_.take_char();
    const auto one = [](uint32_t character) { return CharSet{{character, character}}; };
    switch (c) {
      case 'd': return digits();
      case 'D': return digits().inverse();
      case 'w': return word_chars();
      case 'W': return word_chars().inverse();
      case 's': return spaces();
      case 'S': return spaces().inverse();
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case '0': return one(0);
      case 'x': return one(text_.take_hex(2));
      case 'u': return one(unicode_escape());
      case 'p':
      case 'P': throw text_.problem("Unicode properties are not supported");
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B':
      case 'A':
      case 'Z':
      case 'z': throw text_.problem("word boundaries and anchors by letter are not supported");
      default: break;
    }
    const bool is_digit = c >= '1' && c <= '9', is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    if (is_digit || c == 'k') throw text_.problem("backreferences are not supported");
    if (c < 0x80 && is_letter) throw text_.problem("this escape is not known");
    return one(c);
  }

  uint32_t unicode_escape() {
    uint32_t character = 0;
    if (text_.take("{")) {
      while (!text_.take("}") && character <= 0x10ffff) character = character * 16 + text_.take_hex(1);
    } else {
      character = text_.take_hex(4);
      if (character >= 0xd800 && character < 0xdc00 && text_.take("\\u"))
        character = 0x10000 + ((character - 0xd800) << 10) + (text_.take_hex(4) - 0xdc00);
    }
    if (CharSet{{character, character}}.empty() || character > 0x10ffff)
      throw text_.problem("this is no character");
    return character;
  }

  Grammar& grammar_;
  const RegexOptions& options_;
  PatternText text_;
};

}  // namespace

Grammar::Expr read_regex(Grammar& grammar, std::string_view pattern, const RegexOptions& options) {
  return RegexReader(grammar, pattern, options).read();
}

}  // namespace tessera::text
