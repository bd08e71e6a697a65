// Builds the next version of a text that is being normalised.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer/normalizer.h"

namespace tessera::text {

// Throws Error(Model) if a tokenizer would make `text` longer than text.max_bytes.
void check_growth(const AlignedText& text, size_t bytes);

// Builds a new text from ranges of the old text and new characters, in their order.
class Rewriter {
 public:
  explicit Rewriter(AlignedText& target) : target_(target) { text_.reserve(target.text.size()); }

  void keep(size_t begin, size_t end);
  // Appends `content` in place of the range [begin, end) of the old text.
  void replace(size_t begin, size_t end, std::string_view content);
  // Removes the last `size` bytes of what was appended.
  void take_back(size_t size);
  // Returns what was appended so far.
  const std::string& text() const { return text_; }
  // Hands the new text to the target.
  void finish();

 private:
  AlignedText& target_;
  std::string text_;
  std::vector<ByteSpan> origins_;
};

}  // namespace tessera::text
