#include "tessera/core/utf8.h"

#include <cstring>

namespace tessera {

void append_utf8(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080ull) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

namespace {

// Result of a check of the character that starts with a non-ASCII byte: `size` is the number of valid bytes,
// `whole` tells whether they make a character.
struct CheckedChar {
  size_t size;
  bool whole;
};

CheckedChar check_char(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  size_t length = 0;
  unsigned char low = 0x80, high = 0xbf;  // range of the second byte
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {length, true};
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += ascii_prefix(text.substr(i));
    // Stays in this loop in runs of other scripts, so that it does not go back to the ASCII loop at each
    // character.
    while (i < text.size() && static_cast<unsigned char>(text[i]) >= 0x80) {
      const CheckedChar checked = check_char(text.substr(i));
      if (!checked.whole) return i;
      i += checked.size;
    }
    if (i >= text.size()) return text.size();
  }
}

size_t malformed_length(std::string_view text) { return check_char(text).size; }

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\xef\xbf\xbd";
    text.remove_prefix(malformed_length(text));
  }
  return out;
}

size_t utf8_step(std::string_view text, size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xF0 && lead < 0xF8 ? 4
                        : lead >= 0xE0                ? 3
                        : lead >= 0xC0                ? 2
                                                      : 1;
  if (lead >= 0xF8 || offset + length > text.size()) return 1;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[offset + i]) & 0xC0) != 0x80) return 1;
  }
  return length;
}

int32_t utf8_decode(std::string_view text, size_t offset) {
  if (utf8_step(text, offset) == 1) return static_cast<unsigned char>(text[offset]);
  return static_cast<int32_t>(decode_char(text.data(), offset).code_point);
}

size_t utf8_step_back(std::string_view text, size_t end) {
  size_t at = end - 1;
  for (int i = 0; i < 3 && at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; ++i) --at;
  return utf8_step(text, at) == end - at ? at : end - 1;
}

bool is_python_space(int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view strip_spaces(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end && is_python_space(utf8_decode(text, begin))) begin += utf8_step(text, begin);
  for (size_t last; right && begin < end; end = last) {
    last = utf8_step_back(text, end);
    if (!is_python_space(utf8_decode(text, last))) break;
  }
  return text.substr(begin, end - begin);
}

}  // namespace tessera
