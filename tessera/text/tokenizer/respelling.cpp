// The steps of pre-tokenizers that rewrite a piece.
#include "tessera/text/tokenizer/pre_tokenizer.h"

namespace tessera::text {
namespace {

class Metaspace : public Respelling {
 public:
  Metaspace(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        replace_(make_replace_normalizer(" ", false, replacement_, "")),
        prepend_(make_prepend_normalizer(replacement_)) {}

  void apply(AlignedText& piece, bool starts_text) const override {
    const bool prepends =
        scheme_ == PrependScheme::Always || (scheme_ == PrependScheme::First && starts_text);
    if (!piece.tracked) return respell(piece.text, prepends);
    if (replace_->changes(piece.text)) replace_->apply(piece);
    if (prepends && !piece.text.starts_with(replacement_)) prepend_->apply(piece);
  }
  bool needs_start() const override { return scheme_ == PrependScheme::First; }

 private:
  // Does the same in one pass where nobody asks for origins, since it is done for every word.
  void respell(std::string& text, bool prepends) const {
    if (text.find(' ') == std::string::npos) {
      if (prepends && !text.starts_with(replacement_)) text.insert(0, replacement_);
      return;
    }
    std::string out;
    out.reserve(text.size() + 4 * replacement_.size());
    if (prepends && text.front() != ' ' && !text.starts_with(replacement_)) out = replacement_;
    for (const char c : text) {
      if (c == ' ') {
        out += replacement_;
      } else {
        out += c;
      }
    }
    text = std::move(out);
  }

  std::string replacement_;
  PrependScheme scheme_;
  std::unique_ptr<Normalizer> replace_, prepend_;
};

class SpacePrefix : public Respelling {
 public:
  void apply(AlignedText& piece, bool) const override {
    if (!piece.text.starts_with(' ')) prepend_->apply(piece);
  }

 private:
  std::unique_ptr<Normalizer> prepend_ = make_prepend_normalizer(" ");
};

class ByteSpelling : public Respelling {
 public:
  void apply(AlignedText& piece, bool) const override {
    if (spell_->changes(piece.text)) spell_->apply(piece);
  }

 private:
  std::unique_ptr<Normalizer> spell_ = make_byte_level_normalizer();
};

}  // namespace

std::unique_ptr<Respelling> make_metaspace(std::string replacement, PrependScheme scheme) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme);
}
std::unique_ptr<Respelling> make_space_prefix() { return std::make_unique<SpacePrefix>(); }
std::unique_ptr<Respelling> make_byte_spelling() { return std::make_unique<ByteSpelling>(); }

}  // namespace tessera::text
