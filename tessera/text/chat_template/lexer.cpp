#include "tessera/text/chat_template/lexer.h"

#include <array>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"

namespace tessera::text::jinja {

void fail_syntax(std::string_view template_name, Position at, const std::string& what) {
  throw Error(ErrorKind::Model, "TEMPLATE-SYNTAX", what).at(template_name, at.line, at.column);
}

namespace {

std::string with_plain_newlines(std::string_view source, bool keeps_last) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!keeps_last && !out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name, Dialect dialect)
      : source_(with_plain_newlines(source, dialect == Dialect::Task)),
        name_(name),
        trims_blocks_(dialect == Dialect::Chat) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    add(TokenKind::End, "", at_);
    return std::move(tokens_);
  }

 private:
  // Offsets usually only grow, so lines and columns are counted on from the offset of the last call.
  Position position_of(size_t offset) {
    if (offset < counted_) counted_ = 0, place_ = {1, 1};
    for (; counted_ < offset; ++counted_) {
      const char c = source_[counted_];
      if (c == '\n') {
        ++place_.line;
        place_.column = 1;
      } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
        ++place_.column;
      }
    }
    return place_;
  }

  [[noreturn]] void fail(size_t offset, const std::string& what) {
    fail_syntax(name_, position_of(offset), what);
  }

  void add(TokenKind kind, std::string text, size_t offset) {
    tokens_.push_back({kind, std::move(text), position_of(offset)});
  }

  bool starts(size_t offset, std::string_view what) const {
    return source_.compare(offset, what.size(), what) == 0;
  }

  size_t skip_spaces(size_t offset) const {
    while (offset < source_.size() && is_python_space(utf8_decode(source_, offset)))
      offset += utf8_step(source_, offset);
    return offset;
  }

  // Returns the offset at which the text goes on after a tag whose closing characters end at `end` and have
  // `sign`.
  size_t after_tag(size_t end, char sign, bool trim) const {
    if (sign == '-') return skip_spaces(end);
    if (trims_blocks_ && trim && sign != '+' && end < source_.size() && source_[end] == '\n')
      return end + 1;  // trim_blocks
    return end;
  }

  // Adds the text [begin, end) before a tag. `sign` is the sign that the tag starts with, `variable` is true
  // for {{.
  void add_data(size_t begin, size_t end, char sign, bool variable) {
    std::string text = source_.substr(begin, end - begin);
    if (sign == '-') {
      text = strip(Text(text), std::nullopt, false, true).bytes;
    } else if (trims_blocks_ && sign != '+' && !variable) {
      // lstrip_blocks: white space that alone stands between the start of the line and a block tag goes.
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string::npos ? 0 : newline + 1;
      const bool from_line_start = line > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (from_line_start && strip(Text(text.substr(line)), std::nullopt, true, false).empty())
        text.resize(line);
    }
    if (!text.empty()) add(TokenKind::Data, std::move(text), begin);
  }

  char sign_at(size_t offset) const {
    return offset < source_.size() && (source_[offset] == '-' || source_[offset] == '+') ? source_[offset]
                                                                                         : '\0';
  }

  // Returns the offset after the tag if a `{% raw %}` or `{% endraw %}` tag starts at `offset`, else npos.
  size_t match_word_tag(size_t offset, std::string_view word, bool trim, bool plus) const {
    size_t at = skip_spaces(offset + 2 + (sign_at(offset + 2) ? 1 : 0));
    if (!starts(at, word)) return std::string::npos;
    at = skip_spaces(at + word.size());
    const char sign = sign_at(at) == '-' || (plus && sign_at(at) == '+') ? source_[at] : '\0';
    if (sign) ++at;
    return starts(at, "%}") ? after_tag(at + 2, sign, trim) : std::string::npos;
  }

  void text_and_tag() {
    const size_t begin = at_;
    size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        add(TokenKind::Data, source_.substr(begin), begin);
        at_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(begin, tag, sign, kind == '{');
    if (kind == '%') {
      const size_t raw = match_word_tag(tag, "raw", false, false);
      if (raw != std::string::npos) return raw_text(tag, raw);
    }
    at_ = tag + 2 + (sign ? 1 : 0);
    if (kind == '#') return comment(tag);
    inside_tag(tag, kind == '{');
  }

  void raw_text(size_t tag, size_t begin) {
    for (size_t end = source_.find("{%", begin); end != std::string::npos;
         end = source_.find("{%", end + 1)) {
      const size_t next = match_word_tag(end, "endraw", true, true);
      if (next == std::string::npos) continue;
      add_data(begin, end, sign_at(end + 2), false);
      at_ = next;
      return;
    }
    fail(tag, "this raw block has no {% endraw %}");
  }

  void comment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail(tag, "this comment has no closing #}");
    const char before = end > at_ ? source_[end - 1] : '\0';
    at_ = after_tag(end + 2, before, true);
  }

  void inside_tag(size_t tag, bool variable) {
    add(variable ? TokenKind::VariableBegin : TokenKind::BlockBegin, "", tag);
    const std::string_view close = variable ? "}}" : "%}";
    std::string open;  // closing brackets that are still to come
    while (true) {
      at_ = skip_spaces(at_);
      if (at_ >= source_.size()) fail(tag, std::string("this tag has no closing ") + std::string(close));
      if (open.empty()) {
        const char sign = sign_at(at_) == '-' || (!variable && sign_at(at_) == '+') ? source_[at_] : '\0';
        if (starts(at_ + (sign ? 1 : 0), close)) {
          add(variable ? TokenKind::VariableEnd : TokenKind::BlockEnd, "", at_);
          at_ = after_tag(at_ + (sign ? 3 : 2), sign, !variable);
          return;
        }
      }
      const char c = source_[at_];
      if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        const size_t begin = at_;
        while (at_ < source_.size() && is_name_part(source_[at_])) ++at_;
        if (at_ - begin > kMaxName) fail(begin, "a name of more than 255 bytes");
        add(TokenKind::Name, source_.substr(begin, at_ - begin), begin);
      } else if (c == '\'' || c == '"') {
        string_literal(c);
      } else {
        operator_token(open);
      }
    }
  }

  void operator_token(std::string& open) {
    static constexpr std::array<std::string_view, 25> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (std::string_view op : kOperators) {
      if (!starts(at_, op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) fail(at_, "unexpected '" + std::string(op) + "'");
        if (open.back() != op[0]) {
          fail(at_,
               "unexpected '" + std::string(op) + "', '" + std::string(1, open.back()) + "' is still open");
        }
        open.pop_back();
      }
      add(TokenKind::Operator, std::string(op), at_);
      at_ += op.size();
      return;
    }
    fail(at_, "unexpected character '" + source_.substr(at_, utf8_step(source_, at_)) + "'");
  }

  // Appends digits to `out` without the single underscores that may stand between them.
  void digits(std::string& out, size_t& at) const {
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                                             is_digit(source_[at + 1]) && !out.empty()))) {
      if (source_[at] != '_') out.push_back(source_[at]);
      ++at;
    }
  }

  void number() {
    const size_t begin = at_;
    if (source_[at_] == '0' && at_ + 1 < source_.size() &&
        std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos) {
      size_t end = at_ + 2;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
      std::string text = source_.substr(begin, end - begin);
      std::erase(text, '_');
      add(TokenKind::Integer, text, begin);
      at_ = end;
      return;
    }
    std::string text;
    size_t end = at_;
    digits(text, end);
    bool fraction = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      fraction = true;
      text.push_back('.');
      digits(text, ++end);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      std::string tail = "e";
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
        tail.push_back(source_[exponent++]);
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        digits(tail, exponent);
        text += tail;
        end = exponent;
        fraction = true;
      }
    }
    add(fraction ? TokenKind::Float : TokenKind::Integer, text, begin);
    at_ = end;
  }

  void string_literal(char quote) {
    const size_t begin = at_++;
    std::string text;
    while (true) {
      if (at_ >= source_.size()) fail(begin, "this string has no closing quote");
      const char c = source_[at_];
      if (c == quote) break;
      if (c == '\\') {
        escape(text);
      } else {
        text.push_back(c);
        ++at_;
      }
    }
    ++at_;
    add(TokenKind::String, std::move(text), begin);
  }

  void escape(std::string& text) {
    if (at_ + 1 >= source_.size()) fail(at_, "this string has no closing quote");
    const char c = source_[at_ + 1];
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kMeaning = "\a\b\f\n\r\t\v\\'\"";
    const size_t letter = kLetters.find(c);
    if (letter != std::string_view::npos) {
      text.push_back(kMeaning[letter]);
      at_ += 2;
    } else if (c == '\n') {
      at_ += 2;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      int64_t value = 0;
      for (size_t i = 0; i < count; ++i) {
        const char digit = at_ + 2 + i < source_.size() ? source_[at_ + 2 + i] : '\0';
        const size_t known = std::string_view("0123456789abcdefABCDEF").find(digit);
        if (known == std::string_view::npos) fail(at_, "this escape lacks hexadecimal digits");
        value = value * 16 + static_cast<int64_t>(known < 16 ? known : known - 6);
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail(at_, "this escape is no character");
      append_utf8(text, static_cast<uint32_t>(value));
      at_ += 2 + count;
    } else if (c >= '0' && c <= '7') {
      int32_t value = 0;
      size_t end = at_ + 1;
      for (; end < at_ + 4 && end < source_.size() && source_[end] >= '0' && source_[end] <= '7'; ++end) {
        value = value * 8 + (source_[end] - '0');
      }
      append_utf8(text, static_cast<uint32_t>(value));
      at_ = end;
    } else if (c == 'N') {
      fail(at_, "escapes by character name are not supported");
    } else {
      text.push_back('\\');
      ++at_;
    }
  }

  std::string source_;
  std::string_view name_;
  bool trims_blocks_;
  std::vector<Token> tokens_;
  size_t at_ = 0, counted_ = 0;
  Position place_{1, 1};
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view template_name, Dialect dialect) {
  return Lexer(source, template_name, dialect).run();
}

}  // namespace tessera::text::jinja
