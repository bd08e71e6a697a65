// Normalizers that treat each character by itself.
#include <array>
#include <utility>

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/byte_level.h"
#include "tessera/text/tokenizer/rewriter.h"
#include "tessera/text/tokenizer/unicode_of_bert.h"

namespace tessera::text {
namespace {

// Removes the characters for which Rule::drops() holds, and puts a space in place of those for which
// Rule::blanks() does.
template <class Rule>
class FilterNormalizer : public Normalizer {
 public:
  bool changes(std::string_view text) const override {
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = decode_char(text.data(), i);
      if (Rule::drops(c.code_point) || Rule::blanks(c.code_point)) return true;
      i += c.size;
    }
    return false;
  }

  void apply(AlignedText& text) const override {
    Rewriter rewriter(text);
    size_t kept = 0;  // the text before it is in the rewriter
    for (size_t i = 0; i < text.text.size();) {
      const DecodedChar c = decode_char(text.text.data(), i);
      const size_t end = i + c.size;
      const bool drops = Rule::drops(c.code_point);
      if (drops || Rule::blanks(c.code_point)) {
        rewriter.keep(kept, i);
        rewriter.replace(i, end, drops ? "" : " ");
        kept = end;
      }
      i = end;
    }
    rewriter.keep(kept, text.text.size());
    rewriter.finish();
  }
};

struct MarkRule {
  static bool drops(uint32_t c) { return BertCharTable::instance().flags(c) & kBertMark; }
  static bool blanks(uint32_t) { return false; }
};

// [huggingface/tokenizers normalizers/unicode.rs]
struct NmtRule {
  static bool drops(uint32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || c == 0x8f ||
           c == 0x9f;
  }
  static bool blanks(uint32_t c) {
    return c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
  }
};

class ByteLevelNormalizer : public Normalizer {
 public:
  bool changes(std::string_view text) const override {
    for (const char c : text)
      if (c <= ' ' || c == 0x7f) return true;  // bytes of 0x80 and more are negative
    return false;
  }

  void apply(AlignedText& text) const override {
    Rewriter rewriter(text);
    for (size_t i = 0; i < text.text.size();) {
      const size_t end = i + decode_char(text.text.data(), i).size;
      rewriter.replace(i, end, bytes_to_spelling(std::string_view(text.text).substr(i, end - i)));
      i = end;
    }
    rewriter.finish();
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_accent_normalizer() {
  return std::make_unique<FilterNormalizer<MarkRule>>();
}
std::unique_ptr<Normalizer> make_nmt_normalizer() { return std::make_unique<FilterNormalizer<NmtRule>>(); }
std::unique_ptr<Normalizer> make_byte_level_normalizer() { return std::make_unique<ByteLevelNormalizer>(); }

}  // namespace tessera::text
