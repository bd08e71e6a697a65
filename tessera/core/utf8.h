// UTF-8: characters, checks and repairs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

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
inline bool is_ascii(std::string_view text) { return ascii_prefix(text) == text.size(); }
// Returns the length of the longest prefix that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);
// Returns the offset of the first byte that is not valid UTF-8, or -1 when all is valid.
inline int64_t find_invalid_utf8(std::string_view text) {
  const size_t valid = valid_utf8_prefix(text);
  return valid == text.size() ? -1 : static_cast<int64_t>(valid);
}
// Returns the number of bytes, at least 1, of the malformed sequence that `text` starts with: the longest
// start of a valid character that is there, as the Unicode standard recommends (section 3.9, "maximal
// subpart").
size_t malformed_length(std::string_view text);
// Replaces each malformed sequence by one U+FFFD.
std::string repair_utf8(std::string_view text);

// The functions below take any bytes: an invalid byte counts as one code point.

size_t utf8_step(std::string_view text, size_t offset);  // bytes of the code point at `offset`
int32_t utf8_decode(std::string_view text, size_t offset);
// Returns the start of the code point that ends at `end` (> 0).
size_t utf8_step_back(std::string_view text, size_t end);

// Returns whether Python's str.isspace() holds for the code point.
bool is_python_space(int32_t code_point);
// Removes the white space at the ends, as Python's strip(), lstrip() and rstrip() do.
std::string_view strip_spaces(std::string_view text, bool left = true, bool right = true);

}  // namespace tessera
