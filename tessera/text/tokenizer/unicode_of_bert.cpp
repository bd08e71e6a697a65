#include "tessera/text/tokenizer/unicode_of_bert.h"

#include <utility>

#include <unicode/uchar.h>
#include <unicode/uscript.h>

namespace tessera::text {
namespace {

constexpr uint32_t kNumCodePoints = 0x110000;

// Characters that belonged to another category then, or do in the tables of `tokenizers`.
constexpr std::pair<uint32_t, uint8_t> kExceptions[] = {
    {0x166d, kBertPunctuation}, {0x1734, kBertAccent | kBertMark},
    {0x1885, kBertMark},        {0x1886, kBertMark},
    {0x1cf2, kBertMark},        {0x1cf3, kBertMark},
    {0xa9bd, kBertMark},        {0x111c9, kBertPunctuation}};
constexpr std::pair<uint32_t, uint32_t> kChinese[] = {
    {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
    {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};

uint8_t age_of(UChar32 c) {
  UVersionInfo version;
  u_charAge(c, version);
  return version[0];
}

uint8_t flags_of(UChar32 c) {
  uint8_t flags = u_isUWhiteSpace(c) ? kBertSpace : 0;
  const uint32_t category = U_GET_GC_MASK(c);
  constexpr uint32_t kOther = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK;
  if (category & (kOther | U_GC_P_MASK | U_GC_M_MASK)) {
    const uint8_t age = age_of(c);
    if (age <= 8 && (category & kOther) && c != '\t' && c != '\n' && c != '\r') flags |= kBertControl;
    if (age <= 8 && (category & U_GC_P_MASK)) flags |= kBertPunctuation;
    if (age <= 8 && (category & U_GC_MN_MASK)) flags |= kBertAccent;
    if (age <= 9 && (category & U_GC_M_MASK)) flags |= kBertMark;
  }
  if (c < 0x80 && u_ispunct(c)) flags |= kBertPunctuation;
  if (c < 0x80 && (category & U_GC_S_MASK)) flags |= kBertPunctuation;
  return flags;
}

}  // namespace

const BertCharTable& BertCharTable::instance() {
  static const BertCharTable table;
  return table;
}

BertCharTable::BertCharTable() : flags_(kNumCodePoints) {
  for (uint32_t c = 0; c < kNumCodePoints; ++c) flags_[c] = flags_of(static_cast<UChar32>(c));
  for (const auto& [c, flags] : kExceptions) flags_[c] = flags;
  for (const auto& [first, last] : kChinese)
    for (uint32_t c = first; c <= last; ++c) flags_[c] |= kBertChinese;
}

int32_t script_of_unigram(uint32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  switch (c) {
    case ' ': return -1;
    case 0x953:
    case 0x954: return USCRIPT_DEVANAGARI;
    case 0x589:
    case 0x61c: return USCRIPT_COMMON;
    case 0x30fc: return USCRIPT_HAN;
    default: break;
  }
  UErrorCode status = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(c, &status);
  if (U_FAILURE(status) || script == USCRIPT_UNKNOWN || age_of(c) > 9) return -1;
  return script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ? USCRIPT_HAN : script;
}

}  // namespace tessera::text
