// UTF-8, and the Unicode character classes that pre-tokenisers are written in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

enum CharFlags : uint8_t {
  kLetter = 1,    // \p{L}
  kNumber = 2,    // \p{N}
  kSpace = 4,     // \s: White_Space
  kWord = 8,      // \w: alphabetic, mark, decimal number, connector punctuation, join control
  kNewline = 16,  // \r and \n
  kNumeric = 32,  // characters at which the Digits pre-tokeniser splits
};

// Flags of every code point. The table is built once from ICU, with the letters and numbers that Unicode 15.1
// to 17 added, so that ids do not depend on the age of the ICU at hand.
class CharTable {
 public:
  static const CharTable& instance();

  uint8_t flags(uint32_t code_point) const {
    return code_point < kTableSize ? flags_[code_point] : high_flags(code_point);
  }

 private:
  static constexpr uint32_t kTableSize = 0x40000;

  CharTable();
  static uint8_t high_flags(uint32_t code_point);

  std::vector<uint8_t> flags_;
};

struct DecodedChar {
  uint32_t code_point = 0;
  uint32_t size = 1;  // in bytes
};

// Returns the character at `position` of valid UTF-8.
inline DecodedChar decode_char(const char* text, size_t position) {
  const auto* p = reinterpret_cast<const unsigned char*>(text) + position;
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xe0) return {(p[0] & 0x1fu) << 6 | (p[1] & 0x3fu), 2};
  if (p[0] < 0xf0) return {(p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu), 3};
  return {(p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu), 4};
}

// Returns the byte offset of the character that ends at `end` (> 0) in valid UTF-8.
inline size_t previous_char(const char* text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return begin;
}

void append_utf8(std::string& text, uint32_t code_point);

// Returns the length of the longest prefix that is ASCII.
size_t ascii_prefix(std::string_view text);
// Returns the length of the longest prefix that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);
// Returns the number of bytes, at least 1, of the malformed sequence that `text` starts with: the longest
// start of a valid character that is there, as the Unicode standard recommends (section 3.9, "maximal
// subpart").
size_t malformed_length(std::string_view text);
// Replaces each malformed sequence by one U+FFFD.
std::string repair_utf8(std::string_view text);

}  // namespace tessera::text
