// SentencePiece's map of characters in the way of `tokenizers` [huggingface/tokenizers
// normalizers/precompiled.rs].
#include <unicode/uchar.h>

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/charsmap.h"
#include "tessera/text/tokenizer/rewriter.h"

namespace tessera::text {
namespace {

// Graphemes of at least so many bytes are mapped character by character.
constexpr size_t kLongGrapheme = 6;

int32_t break_class(uint32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

// Returns whether a grapheme goes on between characters of these classes (UAX #29). The rules for pairs of
// flags and for emoji are left out, since they make graphemes of at least kLongGrapheme bytes, whose
// characters are mapped one by one.
bool joins(int32_t before, int32_t behind) {
  if (before == U_GCB_CR) return behind == U_GCB_LF;
  if (before == U_GCB_CONTROL || before == U_GCB_LF) return false;
  if (behind == U_GCB_CONTROL || behind == U_GCB_CR || behind == U_GCB_LF) return false;
  if (behind == U_GCB_EXTEND || behind == U_GCB_ZWJ || behind == U_GCB_SPACING_MARK) return true;
  if (before == U_GCB_PREPEND) return true;
  const bool is_vowel = behind == U_GCB_V, is_tail = behind == U_GCB_T;
  if (before == U_GCB_L) return behind == U_GCB_L || is_vowel || behind == U_GCB_LV || behind == U_GCB_LVT;
  if (before == U_GCB_LV || before == U_GCB_V) return is_vowel || is_tail;
  return (before == U_GCB_LVT || before == U_GCB_T) && is_tail;
}

// A short grapheme that begins with a rule's text is replaced as a whole; the first rule holds, that of the
// shortest text. The characters of other graphemes are mapped one by one.
class PrecompiledNormalizer : public Normalizer {
 public:
  PrecompiledNormalizer(std::string charsmap, const std::string& place) : map_(std::move(charsmap), place) {}

  bool changes(std::string_view text) const override { return !map_.keeps_all(text); }

  void apply(AlignedText& text) const override {
    const std::string_view old = text.text;
    Rewriter rewriter(text);
    size_t kept = 0;  // the text before it is in the rewriter
    const auto map = [&](size_t begin, size_t end) {
      const auto match = map_.first(old.substr(begin, end - begin));
      if (!match) return false;
      rewriter.keep(kept, begin);
      rewriter.replace(begin, end, match->replacement);
      kept = end;
      return true;
    };
    for (size_t begin = 0; begin < old.size();) {
      if (keeps_at(old, begin)) {
        ++begin;
        continue;
      }
      const size_t end = grapheme_end(old, begin);
      if (end - begin >= kLongGrapheme || !map(begin, end)) {
        for (size_t i = begin; i < end;) {
          const size_t next = i + decode_char(old.data(), i).size;
          map(i, next);
          i = next;
        }
      }
      begin = end;
    }
    rewriter.keep(kept, old.size());
    const ByteSpan start = text.tracked && !old.empty() ? text.origins.front() : ByteSpan();
    rewriter.finish();
    // In `tokenizers` the first character stands for removed ones before it too, which a Metaspace sees.
    if (!text.tracked || text.text.empty()) return;
    const uint32_t size = decode_char(text.text.data(), 0).size;
    for (uint32_t i = 0; i < size; ++i) text.origins[i].begin = start.begin;
  }

 private:
  // Returns whether the byte at `i` is a grapheme of ASCII that no rule changes.
  bool keeps_at(std::string_view text, size_t i) const {
    const auto byte = static_cast<unsigned char>(text[i]);
    return byte < 0x80 && byte != '\r' && map_.keeps(byte) &&
           (i + 1 == text.size() || static_cast<unsigned char>(text[i + 1]) < 0x80);
  }

  static size_t grapheme_end(std::string_view text, size_t begin) {
    DecodedChar c = decode_char(text.data(), begin);
    int32_t before = break_class(c.code_point);
    size_t end = begin + c.size;
    while (end < text.size()) {
      c = decode_char(text.data(), end);
      const int32_t behind = break_class(c.code_point);
      if (!joins(before, behind)) break;
      before = behind;
      end += c.size;
    }
    return end;
  }

  Charsmap map_;
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string charsmap, const std::string& place) {
  return std::make_unique<PrecompiledNormalizer>(std::move(charsmap), place);
}

}  // namespace tessera::text
