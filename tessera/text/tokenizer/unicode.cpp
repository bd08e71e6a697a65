#include "tessera/text/tokenizer/unicode.h"

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

}  // namespace tessera::text
