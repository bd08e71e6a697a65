#include "tessera/text/tokenizer/patterns.h"

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/unicode.h"

namespace tessera::text {

namespace {

constexpr const char* kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : text_(text.data()), size_(text.size()), table_(CharTable::instance()) {}

  struct Char {
    uint32_t size = 0;  // 0 at the end of the text
    uint8_t flags = 0;
  };

  Char at(size_t position) const {
    if (position >= size_) return {};
    const DecodedChar c = decode_char(text_, position);
    return {c.size, table_.flags(c.code_point)};
  }

  // Returns the end of the run of characters from `position` whose flags, masked, equal `wanted`.
  size_t run(size_t position, uint8_t mask, uint8_t wanted) const {
    while (position < size_) {
      const DecodedChar c = decode_char(text_, position);
      if ((table_.flags(c.code_point) & mask) != wanted) break;
      position += c.size;
    }
    return position;
  }
  size_t letters(size_t position) const { return run(position, kLetter, kLetter); }
  size_t numbers(size_t position) const { return run(position, kNumber, kNumber); }
  size_t symbols(size_t position) const { return run(position, kLetter | kNumber | kSpace, 0); }
  size_t newlines(size_t position) const { return run(position, kNewline, kNewline); }

  // Returns the end of a contraction such as 've that starts with the apostrophe at `position`, or 0. With
  // `any_case`, Unicode's case folding holds, by which U+017F is an s.
  size_t contraction(size_t position, bool any_case) const {
    const auto letter = [&](size_t i) -> char {
      if (i >= size_) return 0;
      const char c = text_[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    switch (letter(position + 1)) {
      case 's':
      case 't':
      case 'm':
      case 'd': return position + 2;
      case 'r':
      case 'v': return letter(position + 2) == 'e' ? position + 3 : 0;
      case 'l': return letter(position + 2) == 'l' ? position + 3 : 0;
      case '\xc5': return any_case && letter(position + 2) == '\xbf' ? position + 3 : 0;
      default: return 0;
    }
  }

  // Returns the end of the match of \s+(?!\S)|\s+ in a run of white space [begin, end): all of it at the end
  // of the text, otherwise all but its last character if it has more than one.
  size_t spaces(size_t begin, size_t end) const {
    if (end == size_) return end;
    const size_t last = previous_char(text_, end);
    return last > begin ? last : end;
  }

  const char* text_;
  size_t size_;
  const CharTable& table_;
};

size_t next_gpt2(const Scanner& s, size_t begin) {
  const char first = s.text_[begin];
  if (first == '\'') {
    if (const size_t end = s.contraction(begin, false)) return end;
  }
  // An optional space (" ?") may stand before a run of letters, numbers or symbols.
  size_t start = begin;
  Scanner::Char c = s.at(begin);
  if (first == ' ') {
    const Scanner::Char next = s.at(begin + 1);
    if (next.size != 0 && !(next.flags & kSpace)) {
      start = begin + 1;
      c = next;
    }
  }
  if (c.flags & kLetter) return s.letters(start + c.size);
  if (c.flags & kNumber) return s.numbers(start + c.size);
  if (!(c.flags & kSpace)) return s.symbols(start + c.size);
  return s.spaces(begin, s.run(begin, kSpace, kSpace));
}

size_t next_cl100k(const Scanner& s, size_t begin, int max_digits) {
  const char first = s.text_[begin];
  if (first == '\'') {
    if (const size_t end = s.contraction(begin, true)) return end;
  }
  const Scanner::Char c = s.at(begin);
  if (c.flags & kLetter) return s.letters(begin + c.size);
  if (c.flags & kNumber) {
    size_t end = begin + c.size;
    for (int digits = 1; digits < max_digits; ++digits) {
      const Scanner::Char next = s.at(end);
      if (!(next.flags & kNumber)) break;
      end += next.size;
    }
    return end;
  }
  // Here [^\r\n\p{L}\p{N}]?\p{L}+ can match only with its optional character.
  const Scanner::Char next = s.at(begin + c.size);
  if (!(c.flags & kNewline) && (next.flags & kLetter)) return s.letters(begin + c.size + next.size);
  if (!(c.flags & kSpace)) return s.newlines(s.symbols(begin + c.size));
  if (first == ' ' && next.size != 0 && !(next.flags & (kLetter | kNumber | kSpace)))
    return s.newlines(s.symbols(begin + 1 + next.size));
  // \s*[\r\n]+ matches up to the last line end in the run of white space.
  const size_t end = s.run(begin, kSpace, kSpace);
  for (size_t i = end; i > begin; --i)
    if (s.text_[i - 1] == '\n' || s.text_[i - 1] == '\r') return i;
  return s.spaces(begin, end);
}

template <class Next>
void scan(std::string_view text, RangeSink sink, Next next) {
  const Scanner scanner(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = next(scanner, begin);
    sink(begin, end);
    begin = end;
  }
}

}  // namespace

const char* known_pattern_regex(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::Llama3: return kLlama3Regex;
    case KnownPattern::Qwen2: return kQwen2Regex;
    default: return kGpt2Regex;
  }
}

std::optional<KnownPattern> find_known_pattern(std::string_view regex) {
  for (const KnownPattern pattern : {KnownPattern::Gpt2, KnownPattern::Llama3, KnownPattern::Qwen2})
    if (regex == known_pattern_regex(pattern)) return pattern;
  return std::nullopt;
}

void scan_pattern(KnownPattern pattern, std::string_view text, RangeSink sink) {
  switch (pattern) {
    case KnownPattern::Gpt2:
      return scan(text, sink, [](const Scanner& s, size_t begin) { return next_gpt2(s, begin); });
    case KnownPattern::Llama3:
      return scan(text, sink, [](const Scanner& s, size_t begin) { return next_cl100k(s, begin, 3); });
    case KnownPattern::Qwen2:
      return scan(text, sink, [](const Scanner& s, size_t begin) { return next_cl100k(s, begin, 1); });
  }
}

}  // namespace tessera::text
