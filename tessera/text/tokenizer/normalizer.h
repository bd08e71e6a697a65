// Normalises text before pre-tokenisation, and keeps the way back to the original bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// A text that is being normalised. If `tracked`, origins[i] is the range of the original text that byte i of
// `text` came from. Bytes that replace a range take the whole range; inserted bytes take an empty range at
// their place.
struct AlignedText {
  std::string text;
  bool tracked = false;
  bool starts_text = true;  // begins where the text does that was given to encode
  std::vector<ByteSpan> origins;
  // Largest size that a tokenizer may give the text: several times the growth under NFKD, which grows text
  // most.
  size_t max_bytes;

  // Begins with `piece`, which starts at byte `offset` of the original text.
  AlignedText(std::string_view piece, int64_t offset, bool tracked);
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Returns false only if apply() would leave `text` (valid UTF-8) as it is. Does not allocate.
  virtual bool changes(std::string_view text) const = 0;
  // Normalises `text`; the result is valid UTF-8. Throws Error(Model) if a regular expression runs away, or
  // if the text grows beyond max_bytes.
  virtual void apply(AlignedText& text) const = 0;
};

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };

std::unique_ptr<Normalizer> make_unicode_normalizer(NormalForm form);
// Lowers each character by itself, without rules that look at its neighbours.
std::unique_ptr<Normalizer> make_lowercase_normalizer();
// Puts `prefix` before text that is not empty.
std::unique_ptr<Normalizer> make_prepend_normalizer(std::string prefix);
// Removes white space from the chosen ends.
std::unique_ptr<Normalizer> make_strip_normalizer(bool left, bool right);
// Replaces every match of `pattern`. `place` names the expression in messages.
std::unique_ptr<Normalizer> make_replace_normalizer(std::string pattern, bool is_regex, std::string content,
                                                    std::string place);
// Removes combining marks (StripAccents).
std::unique_ptr<Normalizer> make_accent_normalizer();
// Removes control characters, and turns other kinds of white space into spaces (Nmt, the rule of machine
// translation's first SentencePiece models).
std::unique_ptr<Normalizer> make_nmt_normalizer();
// Spells each byte by its character of the byte-level alphabet.
std::unique_ptr<Normalizer> make_byte_level_normalizer();
struct BertNormalizerOptions {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
std::unique_ptr<Normalizer> make_bert_normalizer(const BertNormalizerOptions& options);
// Applies a map of SentencePiece in the way of `tokenizers`. Takes the bytes of the map (charsmap.h), and
// throws Error(Model) for a malformed one.
std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string charsmap, const std::string& place);
std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps);

}  // namespace tessera::text
