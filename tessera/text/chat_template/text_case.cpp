#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/text.h"

namespace tessera::text::jinja {

namespace {

using StringMap = int32_t (*)(UChar*, int32_t, const UChar*, int32_t, const char*, UErrorCode*);

// Returns the full case mapping of one code point.
std::u16string mapped(int32_t c, StringMap map) {
  UChar in[2], out[8];
  int32_t count = 0;
  U16_APPEND_UNSAFE(in, count, c);
  UErrorCode status = U_ZERO_ERROR;
  const int32_t length = map(out, 8, in, count, "", &status);
  if (U_FAILURE(status)) return std::u16string(in, in + count);
  return std::u16string(out, out + length);
}

void append_utf16(std::string& out, const std::u16string& text) {
  for (int32_t i = 0, n = static_cast<int32_t>(text.size()); i < n;) {
    UChar32 c;
    U16_NEXT(text.data(), i, n, c);
    append_utf8(out, static_cast<uint32_t>(c));
  }
}

std::string upper_of(int32_t c) {
  std::string out;
  append_utf16(out, mapped(c, u_strToUpper));
  return out;
}

std::string lower_of(int32_t c) {
  std::string out;
  append_utf16(out, mapped(c, u_strToLower));
  return out;
}

// Returns the title case: the special title letter if there is one (U+01C5), else the upper case with every
// letter after the first lowered (U+00DF gives "Ss").
std::string title_of(int32_t c) {
  std::string out;
  const std::u16string upper = mapped(c, u_strToUpper);
  if (u_totitle(c) != c || upper.size() <= 1) {
    append_utf8(out, static_cast<uint32_t>(u_totitle(c)));
    return out;
  }
  for (int32_t i = 0, n = static_cast<int32_t>(upper.size()); i < n;) {
    UChar32 letter;
    U16_NEXT(upper.data(), i, n, letter);
    out += out.empty() ? (append_utf8(out, static_cast<uint32_t>(letter)), std::string()) : lower_of(letter);
  }
  return out;
}

std::string folded(int32_t c) {
  UChar in[2], out[8];
  int32_t count = 0;
  U16_APPEND_UNSAFE(in, count, c);
  UErrorCode status = U_ZERO_ERROR;
  const int32_t length = u_strFoldCase(out, 8, in, count, U_FOLD_CASE_DEFAULT, &status);
  std::string text;
  append_utf16(text, std::u16string(out, out + (U_FAILURE(status) ? 0 : length)));
  return text;
}

bool is_cased(int32_t c) { return u_hasBinaryProperty(c, UCHAR_CASED); }
bool is_case_ignorable(int32_t c) { return u_hasBinaryProperty(c, UCHAR_CASE_IGNORABLE); }

// Returns whether the capital sigma at `at` ends a word, so that it lowers to U+03C2: a letter stands before
// it and none after, characters that case ignores left out. Looks at most 64 code points ahead.
bool is_final_sigma(std::string_view text, size_t at, bool cased_before) {
  if (!cased_before) return false;
  size_t i = at + utf8_step(text, at);
  for (int looked = 0; i < text.size() && looked < 64; i += utf8_step(text, i), ++looked) {
    const int32_t c = utf8_decode(text, i);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

// Calls map(code point, offset) for each code point and joins the results, each with the origin of its code
// point.
template <typename Map>
Text map_code_points(const Text& text, const Map& map) {
  Text out;
  size_t hint = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t step = utf8_step(text.bytes, at);
    const bool valid = step > 1 || static_cast<unsigned char>(text.bytes[at]) < 0x80;
    const Origin origin = text.origin_at(at, hint);
    out.append(valid ? map(utf8_decode(text.bytes, at), at) : text.bytes.substr(at, 1), origin);
    at += step;
  }
  return out;
}

}  // namespace

Text change_case(const Text& text, Case change) {
  constexpr int32_t kSigma = 0x3A3;
  bool first = true, previous_cased = false, word_cased = false;
  const auto lower_at = [&](int32_t c, size_t at) {
    if (c == kSigma) return std::string(is_final_sigma(text.bytes, at, word_cased) ? "\xCF\x82" : "\xCF\x83");
    return lower_of(c);
  };
  const auto change_one = [&](int32_t c, size_t at) -> std::string {
    switch (change) {
      case Case::Lower: return lower_at(c, at);
      case Case::Upper: return upper_of(c);
      case Case::Fold: return folded(c);
      case Case::Capitalize: {
        const bool was_first = first;
        first = false;
        return was_first ? title_of(c) : lower_at(c, at);
      }
      case Case::Title: {
        const bool inside = previous_cased;
        previous_cased = is_cased(c);
        return inside ? lower_at(c, at) : title_of(c);
      }
    }
    return {};
  };
  return map_code_points(text, [&](int32_t c, size_t at) {
    std::string out = change_one(c, at);
    if (!is_case_ignorable(c)) word_cased = is_cased(c);
    return out;
  });
}

Text title_filter(const Text& text) {
  bool first = true;
  return map_code_points(text, [&](int32_t c, size_t) -> std::string {
    const bool was_first = first;
    first = is_python_space(c) ||
            (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    return was_first && !first ? upper_of(c) : lower_of(c);
  });
}

}  // namespace tessera::text::jinja
