// The normalizer of BERT [huggingface/tokenizers normalizers/bert.rs].
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/rewriter.h"
#include "tessera/text/tokenizer/unicode_of_bert.h"

namespace tessera::text {
namespace {

// The steps in order: clean_text drops control characters and turns white space into spaces;
// handle_chinese_chars puts spaces around Chinese characters; strip_accents decomposes characters and drops
// the marks; then comes lower case.
class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options) : options_(options) {}

  bool changes(std::string_view text) const override {
    for (const char byte : text) {
      const auto c = static_cast<unsigned char>(byte);
      if (c >= 0x80 || (options_.lowercase && c >= 'A' && c <= 'Z')) return true;
      if (options_.clean_text && (c < ' ' || c == 0x7f)) return true;
    }
    return false;
  }

  void apply(AlignedText& text) const override {
    const bool is_plain = is_ascii(text.text);
    if (options_.clean_text || (options_.handle_chinese_chars && !is_plain)) clean(text);
    if (options_.strip_accents && !is_plain) {
      if (decompose_->changes(text.text)) decompose_->apply(text);
      drop_accents(text);
    }
    if (options_.lowercase && lower_->changes(text.text)) lower_->apply(text);
  }

 private:
  void clean(AlignedText& text) const {
    Rewriter rewriter(text);
    size_t kept = 0;  // the text before it is in the rewriter
    for (size_t i = 0; i < text.text.size();) {
      const DecodedChar c = decode_char(text.text.data(), i);
      const size_t end = i + c.size;
      const uint8_t flags = table_.flags(c.code_point);
      const bool drops =
          options_.clean_text && ((flags & kBertControl) || c.code_point == 0 || c.code_point == 0xfffd);
      const bool blanks = options_.clean_text && (flags & kBertSpace) && c.code_point != ' ';
      if (drops || blanks) {
        rewriter.keep(kept, i);
        rewriter.replace(i, end, drops ? "" : " ");
        kept = end;
      } else if (options_.handle_chinese_chars && (flags & kBertChinese)) {
        rewriter.keep(kept, i);
        rewriter.replace(i, i, " ");
        rewriter.keep(i, end);
        rewriter.replace(end, end, " ");
        kept = end;
      }
      i = end;
    }
    rewriter.keep(kept, text.text.size());
    rewriter.finish();
  }

  void drop_accents(AlignedText& text) const {
    Rewriter rewriter(text);
    size_t kept = 0;
    for (size_t i = 0; i < text.text.size();) {
      const DecodedChar c = decode_char(text.text.data(), i);
      if (table_.flags(c.code_point) & kBertAccent) {
        rewriter.keep(kept, i);
        kept = i + c.size;
      }
      i += c.size;
    }
    rewriter.keep(kept, text.text.size());
    rewriter.finish();
  }

  BertNormalizerOptions options_;
  const BertCharTable& table_ = BertCharTable::instance();
  std::unique_ptr<Normalizer> decompose_ = make_unicode_normalizer(NormalForm::Nfd);
  std::unique_ptr<Normalizer> lower_ = make_lowercase_normalizer();
};

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options) {
  return std::make_unique<BertNormalizer>(options);
}

}  // namespace tessera::text
