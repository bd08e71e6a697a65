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
    if (replace_->changes(piece.text)) replace_->apply(piece);
    const bool prepends =
        scheme_ == PrependScheme::Always || (scheme_ == PrependScheme::First && starts_text);
    if (prepends && !piece.text.starts_with(replacement_)) prepend_->apply(piece);
  }
  bool needs_start() const override { return scheme_ == PrependScheme::First; }

 private:
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
