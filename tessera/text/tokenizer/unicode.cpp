#include "tessera/text/tokenizer/unicode.h"

#include <cstring>

#include <unicode/uchar.h>

#include "tessera/text/tokenizer/unicode_additions.h"

namespace tessera::text {
namespace {

// Numbers of Unicode 17, which count for the Digits pre-tokeniser but not for the regular expressions.
constexpr NewCharacters kNewestNumbers[] = {{"Nd", 0x11de0, 0x11de9}, {"Nl", 0x16ff4, 0x16ff6}};

}  // namespace

const CharTable& CharTable::instance() {
  static const CharTable table;
  return table;
}

CharTable::CharTable() : flags_(kTableSize) {
  for (uint32_t c = 0; c < kTableSize; ++c) {
    const auto code_point = static_cast<UChar32>(c);
    const uint32_t category = U_GET_GC_MASK(code_point);
    uint8_t flags = 0;
    if (category & U_GC_L_MASK) flags |= kLetter;
    if (category & U_GC_N_MASK) flags |= kNumber | kNumeric;
    if (u_isUWhiteSpace(code_point)) flags |= kSpace;
    if ((category & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) || u_isUAlphabetic(code_point) ||
        u_hasBinaryProperty(code_point, UCHAR_JOIN_CONTROL))
      flags |= kWord;
    if (c == '\r' || c == '\n') flags |= kNewline;
    flags_[c] = flags;
  }
  const auto add = [&](const NewCharacters& range, uint8_t added) {
    for (uint32_t c = range.first; c <= range.last; ++c) flags_[c] |= added;
  };
  for (const NewCharacters& range : new_characters()) {
    if (range.category[0] == 'L') add(range, kLetter | kWord);
    if (range.category[0] == 'N') add(range, kNumber | kNumeric | kWord);  // all of them are decimal digits
    if (range.category[0] == 'M') add(range, kWord);
  }
  for (const NewCharacters& range : kNewestNumbers) add(range, kNumeric);
}

uint8_t CharTable::high_flags(uint32_t code_point) {
  return code_point >= 0xe0100 && code_point <= 0xe01ef ? kWord : 0;  // variation selectors are marks
}

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

}  // namespace tessera::text
