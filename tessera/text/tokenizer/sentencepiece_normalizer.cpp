#include "tessera/text/tokenizer/sentencepiece_normalizer.h"

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/charsmap.h"
#include "tessera/text/tokenizer/piece_trie.h"
#include "tessera/text/tokenizer/rewriter.h"

namespace tessera::text {
namespace {

constexpr std::string_view kEscape = "\u2581";

PieceTrie make_trie(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (const std::string& text : texts) entries.emplace_back(text, 0);
  return PieceTrie(std::move(entries));
}

class SentencePieceNormalizer : public Normalizer {
 public:
  SentencePieceNormalizer(SentencePieceNormalizerOptions options, const std::string& place)
      : options_(std::move(options)), map_(options_.charsmap, place), keeps_(make_trie(options_.keeps)) {}

  bool changes(std::string_view text) const override { return !text.empty(); }

  void apply(AlignedText& text) const override {
    const std::string_view old = text.text;
    const std::string_view space = options_.escape_whitespaces ? kEscape : " ";
    Rewriter rewriter(text);
    size_t at = 0;
    while (options_.remove_extra_whitespaces && at < old.size()) {
      const Charsmap::Match match = normal_form(old, at);
      if (match.replacement != " ") break;
      at += match.length;
    }
    const bool has_dummy =
        options_.add_dummy_prefix && at < old.size() && (!options_.prefix_at_start_only || text.starts_text);
    if (has_dummy && !options_.space_is_suffix) rewriter.replace(at, at, space);
    bool is_after_space = options_.remove_extra_whitespaces;
    while (at < old.size()) {
      if (const size_t end = plain_end(old, at); end > at) {
        rewriter.keep(at, end);
        is_after_space = false;
        at = end;
        continue;
      }
      const Charsmap::Match match = normal_form(old, at);
      std::string_view form = match.replacement;
      while (is_after_space && form.starts_with(' ')) form.remove_prefix(1);
      append(form, old, at, at + match.length, space, rewriter);
      if (!form.empty()) is_after_space = options_.remove_extra_whitespaces && form.ends_with(' ');
      at += match.length;
    }
    while (options_.remove_extra_whitespaces && rewriter.text().ends_with(space))
      rewriter.take_back(space.size());
    if (has_dummy && options_.space_is_suffix) rewriter.replace(at, at, space);
    rewriter.finish();
  }

 private:
  // Returns whether the byte at `at` stands for itself, whatever comes before and behind.
  bool is_plain(std::string_view text, size_t at) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    return byte < 0x80 && map_.keeps(byte) &&
           (at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 0x80);
  }

  // Returns the end of the run of plain bytes without a space at `at`.
  size_t plain_end(std::string_view text, size_t at) const {
    if (!options_.keeps.empty()) return at;
    while (at < text.size() && text[at] != ' ' && is_plain(text, at)) ++at;
    return at;
  }

  // Returns what stands for the text at `at`: a user-defined piece for itself, the form of the longest rule,
  // or one character.
  Charsmap::Match normal_form(std::string_view text, size_t at) const {
    const std::string_view rest = text.substr(at);
    if (!options_.keeps.empty()) {
      size_t length = 0;
      int32_t node = PieceTrie::kRoot;
      for (size_t i = 0; i < rest.size(); ++i) {
        node = keeps_.step(node, static_cast<unsigned char>(rest[i]));
        if (node == PieceTrie::kNone) break;
        if (keeps_.value(node) >= 0) length = i + 1;
      }
      if (length > 0) return {length, rest.substr(0, length)};
    }
    if (!is_plain(text, at))
      if (const auto match = map_.longest(rest)) return *match;
    const size_t size = decode_char(text.data(), at).size;
    return {size, rest.substr(0, size)};
  }

  static void append(std::string_view form, std::string_view old, size_t begin, size_t end,
                     std::string_view space, Rewriter& rewriter) {
    if (form == old.substr(begin, end - begin) && form.find(' ') == std::string_view::npos)
      return rewriter.keep(begin, end);
    for (size_t i = 0; i < form.size();) {
      const size_t next = form[i] == ' ' ? i + 1 : std::min(form.find(' ', i), form.size());
      rewriter.replace(begin, end, form[i] == ' ' ? space : form.substr(i, next - i));
      i = next;
    }
  }

  SentencePieceNormalizerOptions options_;
  Charsmap map_;
  PieceTrie keeps_;
};

}  // namespace

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(SentencePieceNormalizerOptions options,
                                                          const std::string& place) {
  return std::make_unique<SentencePieceNormalizer>(std::move(options), place);
}

}  // namespace tessera::text
