#include "tessera/text/tokenizer/rewriter.h"

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::text {

void check_growth(const AlignedText& text, size_t bytes) {
  if (bytes <= text.max_bytes) return;
  throw Error(ErrorKind::Model, "TOKENIZER-GROWTH",
              "the tokenizer's normalizer makes the text many times longer")
      .in("tokenizer.json: $.normalizer")
      .got("more than " + format_bytes(static_cast<int64_t>(text.max_bytes)) + " out of one piece of text");
}

void Rewriter::keep(size_t begin, size_t end) {
  check_growth(target_, text_.size() + (end - begin));
  text_.append(target_.text, begin, end - begin);
  if (target_.tracked)
    origins_.insert(origins_.end(), target_.origins.begin() + static_cast<int64_t>(begin),
                    target_.origins.begin() + static_cast<int64_t>(end));
}

void Rewriter::replace(size_t begin, size_t end, std::string_view content) {
  check_growth(target_, text_.size() + content.size());
  text_.append(content);
  if (!target_.tracked || content.empty()) return;
  ByteSpan origin;
  if (begin < end) {
    origin = {target_.origins[begin].begin, target_.origins[end - 1].end};
  } else if (begin < target_.origins.size()) {  // an insertion stands for no byte
    origin = {target_.origins[begin].begin, target_.origins[begin].begin};
  } else if (!target_.origins.empty()) {
    origin = {target_.origins.back().end, target_.origins.back().end};
  }
  origins_.insert(origins_.end(), content.size(), origin);
}

void Rewriter::take_back(size_t size) {
  text_.resize(text_.size() - size);
  if (target_.tracked) origins_.resize(text_.size());
}

void Rewriter::finish() {
  target_.text = std::move(text_);
  target_.origins = std::move(origins_);
}

}  // namespace tessera::text
