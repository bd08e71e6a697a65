// Text normalisation before pre-tokenisation, with the way back to the original bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// Text under normalisation. When `tracked`, origins[i] is the range of the original text that byte i of
// `text` came from; characters that a step inserts take the range of the one before them.
struct AlignedText {
  std::string text;
  bool tracked = false;
  std::vector<ByteSpan> origins;
  // What a tokenizer may make of it: several times what NFKD, the most generous, makes of anything.
  size_t max_bytes;

  // Starts as the piece of the original text that begins at byte `offset` of it.
  AlignedText(std::string_view piece, int64_t offset, bool tracked);
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // False promises that apply() would leave `text` (valid UTF-8) as it is; checked without allocation.
  virtual bool changes(std::string_view text) const = 0;
  // The result is valid UTF-8. Throws Error(Model) when a regular expression runs away, and when the text
  // grows beyond max_bytes.
  virtual void apply(AlignedText& text) const = 0;
};

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };

std::unique_ptr<Normalizer> make_unicode_normalizer(NormalForm form);
// Each character by itself: no rules that look at its neighbours.
std::unique_ptr<Normalizer> make_lowercase_normalizer();
// Puts `prefix` before text that is not empty.
std::unique_ptr<Normalizer> make_prepend_normalizer(std::string prefix);
// White space off the ends.
std::unique_ptr<Normalizer> make_strip_normalizer(bool left, bool right);
// `place` names the expression in messages.
std::unique_ptr<Normalizer> make_replace_normalizer(std::string pattern, bool is_regex, std::string content,
                                                    std::string place);
std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps);

}  // namespace tessera::text
