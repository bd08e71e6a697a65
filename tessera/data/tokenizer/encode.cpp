#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/data/tokenizer/tokenizer_impl.h"
#include "tessera/data/tokenizer/unicode.h"

namespace tessera::data {
namespace {

// ICU counts in 32 bits.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// Turns words of one text into ids and, if asked, spans of the original bytes.
class WordEncoder {
 public:
  // Byte i of `text` stands for origins[i], or for byte offset + i when there are no origins.
  WordEncoder(const Bpe& model, std::string_view text, int64_t offset, const std::vector<ByteSpan>* origins,
              bool with_spans, EncodeScratch& scratch, Encoding& out)
      : model_(model),
        text_(text),
        offset_(offset),
        origins_(origins),
        with_spans_(with_spans),
        scratch_(scratch),
        out_(out) {}

  void word(size_t begin, size_t end) {
    scratch_.tokens.clear();
    model_.encode(text_.substr(begin, end - begin), scratch_.bpe, scratch_.tokens);
    emit(begin);
  }

  // A word that has a space before it that is not in the text.
  void word_after_space(size_t begin, size_t end) {
    scratch_.tokens.clear();
    std::string spaced = " ";
    spaced.append(text_.substr(begin, end - begin));
    model_.encode(spaced, scratch_.bpe, scratch_.tokens);
    if (!scratch_.tokens.empty()) {
      // The space stands for no byte of the text.
      auto& tokens = scratch_.tokens;
      --tokens.front().length;
    }
    emit(begin);
  }

  ByteSpan span(size_t begin, size_t end) const {
    if (origins_ == nullptr)
      return {offset_ + static_cast<int64_t>(begin), offset_ + static_cast<int64_t>(end)};
    if (begin >= end) {
      const int64_t at = begin > 0           ? (*origins_)[begin - 1].end
                         : origins_->empty() ? offset_
                                             : origins_->front().begin;
      return {at, at};
    }
    return {(*origins_)[begin].begin, (*origins_)[end - 1].end};
  }

 private:
  void emit(size_t position) {
    for (const WordToken& token : scratch_.tokens) {
      out_.ids.push_back(token.id);
      if (with_spans_) out_.spans.push_back(span(position, position + token.length));
      position += token.length;
    }
  }

  const Bpe& model_;
  std::string_view text_;
  int64_t offset_;
  const std::vector<ByteSpan>* origins_;
  bool with_spans_;
  EncodeScratch& scratch_;
  Encoding& out_;
};

void encode_text(const PreTokenizer& pre_tokenizer, std::string_view text, size_t text_offset,
                 WordEncoder& words) {
  const auto word = [&](size_t begin, size_t end) { words.word(text_offset + begin, text_offset + end); };
  if (!pre_tokenizer.byte_level || (!pre_tokenizer.use_gpt2_pattern && !pre_tokenizer.add_prefix_space))
    return pre_tokenizer.for_each_piece(text, word);
  pre_tokenizer.for_each_piece(text, [&](size_t begin, size_t end) {
    const std::string_view piece = text.substr(begin, end - begin);
    const bool add_space = pre_tokenizer.add_prefix_space && piece[0] != ' ';
    const size_t base = text_offset + begin;
    if (!add_space) {
      return scan_pattern(KnownPattern::Gpt2, piece,
                          [&](size_t b, size_t e) { words.word(base + b, base + e); });
    }
    if (!pre_tokenizer.use_gpt2_pattern) return words.word_after_space(base, base + piece.size());
    const std::string spaced = " " + std::string(piece);
    scan_pattern(KnownPattern::Gpt2, spaced, [&](size_t b, size_t e) {
      if (b > 0) {
        words.word(base + b - 1, base + e - 1);
      } else {
        words.word_after_space(base, base + e - 1);
      }
    });
  });
}

// Runs of invalid UTF-8 become U+FFFD, which stands for the bytes that it replaces.
AlignedText repaired(std::string_view text, bool with_spans) {
  AlignedText out("", 0, with_spans);
  size_t position = 0;
  while (position < text.size()) {
    const size_t valid = valid_utf8_prefix(text.substr(position));
    out.text.append(text.substr(position, valid));
    for (size_t i = 0; with_spans && i < valid; ++i) {
      const auto at = static_cast<int64_t>(position + i);
      out.origins.push_back({at, at + 1});
    }
    position += valid;
    if (position >= text.size()) break;
    const size_t length = malformed_length(text.substr(position));
    out.text += "\xef\xbf\xbd";
    if (with_spans)
      out.origins.insert(out.origins.end(), 3,
                         {static_cast<int64_t>(position), static_cast<int64_t>(position + length)});
    position += length;
  }
  return out;
}

}  // namespace

std::unique_ptr<EncodeScratch> Tokenizer::Impl::borrow_scratch() const {
  const std::lock_guard lock(scratch_mutex_);
  if (scratches_.empty()) return std::make_unique<EncodeScratch>();
  auto scratch = std::move(scratches_.back());
  scratches_.pop_back();
  return scratch;
}

void Tokenizer::Impl::give_back(std::unique_ptr<EncodeScratch> scratch) const {
  const std::lock_guard lock(scratch_mutex_);
  scratches_.push_back(std::move(scratch));
}

void Tokenizer::Impl::encode_piece(std::string_view piece, int64_t offset, const EncodeOptions& options,
                                   bool with_spans, EncodeScratch& scratch, Encoding& out) const {
  // Kept alive while the words refer to it.
  std::optional<AlignedText> normalized;
  if (pipeline.normalizer && pipeline.normalizer->changes(piece)) {
    normalized.emplace(piece, offset, with_spans);
    pipeline.normalizer->apply(*normalized);
  }
  const std::string_view text = normalized ? std::string_view(normalized->text) : piece;
  WordEncoder words(*pipeline.model, text, offset, normalized && with_spans ? &normalized->origins : nullptr,
                    with_spans, scratch, out);
  scratch.splits.clear();
  pipeline.added.normalized_matcher().split(text, options.parse_special, scratch.splits);
  for (const AddedSplit& split : scratch.splits) {
    if (split.id >= 0) {
      out.ids.push_back(split.id);
      if (with_spans) out.spans.push_back(words.span(split.begin, split.end));
    } else {
      encode_text(pipeline.pre_tokenizer, text.substr(split.begin, split.end - split.begin), split.begin,
                  words);
    }
  }
}

Encoding Tokenizer::Impl::encode(std::string_view text, const EncodeOptions& options, bool with_spans) const {
  if (text.size() > kMaxTextBytes)
    throw Error(ErrorKind::Data, "TEXT-TOO-LONG", "one text is too long to encode")
        .got(std::to_string(text.size()) + " bytes")
        .need("at most " + std::to_string(kMaxTextBytes));
  std::optional<AlignedText> valid;
  if (valid_utf8_prefix(text) != text.size()) {
    valid.emplace(repaired(text, with_spans));
    text = valid->text;
  }

  Encoding out;
  const PostProcessor& post = pipeline.post_processor;
  if (options.add_special_tokens) {
    out.ids = post.prefix;
    if (with_spans) out.spans.resize(out.ids.size());
  }
  auto scratch = borrow_scratch();
  scratch->raw_splits.clear();
  pipeline.added.raw_matcher().split(text, options.parse_special, scratch->raw_splits);
  for (const AddedSplit& split : scratch->raw_splits) {
    if (split.id >= 0) {
      out.ids.push_back(split.id);
      if (with_spans)
        out.spans.push_back({static_cast<int64_t>(split.begin), static_cast<int64_t>(split.end)});
    } else {
      encode_piece(text.substr(split.begin, split.end - split.begin), static_cast<int64_t>(split.begin),
                   options, with_spans, *scratch, out);
    }
  }
  give_back(std::move(scratch));

  const size_t prefix = options.add_special_tokens ? post.prefix.size() : 0;
  if (with_spans && valid) {
    // Back over the repair, to the bytes that were given.
    for (size_t i = prefix; i < out.spans.size(); ++i) {
      ByteSpan& span = out.spans[i];
      const auto& origins = valid->origins;
      const auto begin = static_cast<size_t>(span.begin), end = static_cast<size_t>(span.end);
      if (begin < end) {
        span = {origins[begin].begin, origins[end - 1].end};
      } else {
        span.begin = span.end = begin < origins.size() ? origins[begin].begin : origins.back().end;
      }
    }
  }
  if (options.add_special_tokens) {
    out.ids.insert(out.ids.end(), post.suffix.begin(), post.suffix.end());
    if (with_spans) out.spans.resize(out.ids.size());
  }
  return out;
}

}  // namespace tessera::data
