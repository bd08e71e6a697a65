#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

// Largest text, since ICU counts bytes in 32 bits.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// A text on its way to the model, with the way back to the bytes that the caller gave.
struct SourceText {
  std::string_view text;
  int64_t offset = 0;                              // of its first byte in the caller's text
  const std::vector<ByteSpan>* origins = nullptr;  // of each byte; null: byte i is byte offset + i

  // Returns the caller's bytes that [begin, end) came from; an empty range for an empty one.
  ByteSpan span(size_t begin, size_t end) const {
    if (origins == nullptr) return {offset + static_cast<int64_t>(begin), offset + static_cast<int64_t>(end)};
    if (begin >= end) {
      const int64_t at = begin > 0          ? (*origins)[begin - 1].end
                         : origins->empty() ? offset
                                            : origins->front().begin;
      return {at, at};
    }
    return {(*origins)[begin].begin, (*origins)[end - 1].end};
  }

  // Copies the piece [begin, end) into a text of its own, to be rewritten.
  AlignedText copy(size_t begin, size_t end, bool tracked) const {
    AlignedText out(text.substr(begin, end - begin), offset + static_cast<int64_t>(begin), tracked);
    for (size_t i = begin; tracked && origins != nullptr && i < end; ++i)
      out.origins[i - begin] = (*origins)[i];
    return out;
  }
};

// Turns words into ids and, if asked, spans of the original bytes.
class WordEncoder {
 public:
  WordEncoder(const WordModel& model, bool with_spans, std::span<const int64_t> cuts, EncodeScratch& scratch,
              Encoding& out)
      : model_(model), with_spans_(with_spans), cuts_(cuts), scratch_(scratch), out_(out) {}

  void word(const SourceText& source, size_t begin, size_t end) {
    for (size_t cut = next_cut(source, begin, end); cut < end; cut = next_cut(source, begin, end)) {
      encode(source, begin, cut);
      begin = cut;
    }
    encode(source, begin, end);
  }

  // Encodes a word with a space before it that is not in the text.
  void word_after_space(const SourceText& source, size_t begin, size_t end) {
    const size_t cut = next_cut(source, begin, end);
    encode_after_space(source, begin, cut);
    if (cut < end) word(source, cut, end);
  }

  void added_token(int32_t id, ByteSpan span) {
    out_.ids.push_back(id);
    if (with_spans_) out_.spans.push_back(span);
  }

 private:
  // Returns where the word [begin, end) must be cut first: behind `begin`, or `end` if nowhere.
  size_t next_cut(const SourceText& source, size_t begin, size_t end) const {
    if (cuts_.empty()) return end;
    const ByteSpan whole = source.span(begin, end);
    const auto cut = std::upper_bound(cuts_.begin(), cuts_.end(), whole.begin);
    if (cut == cuts_.end() || *cut >= whole.end) return end;
    size_t at = begin + 1;
    while (at < end && source.span(at, end).begin < *cut) ++at;
    return at;
  }

  void encode(const SourceText& source, size_t begin, size_t end) {
    scratch_.tokens.clear();
    model_.encode(source.text.substr(begin, end - begin), scratch_.model, scratch_.tokens);
    emit(source, begin);
  }

  void encode_after_space(const SourceText& source, size_t begin, size_t end) {
    scratch_.tokens.clear();
    std::string spaced = " ";
    spaced.append(source.text.substr(begin, end - begin));
    model_.encode(spaced, scratch_.model, scratch_.tokens);
    if (!scratch_.tokens.empty()) {
      // The space stands for no byte of the text, so the first token is one byte shorter there.
      auto& tokens = scratch_.tokens;
      --tokens.front().length;
    }
    emit(source, begin);
  }

  void emit(const SourceText& source, size_t position) {
    for (const WordToken& token : scratch_.tokens) {
      out_.ids.push_back(token.id);
      if (with_spans_) out_.spans.push_back(source.span(position, position + token.length));
      position += token.length;
    }
  }

  const WordModel& model_;
  bool with_spans_;
  std::span<const int64_t> cuts_;
  EncodeScratch& scratch_;
  Encoding& out_;
};

// Runs the byte-level step on a piece, or takes the piece as one word if there is no such step.
void encode_last(const PreTokenizer& pre_tokenizer, const SourceText& source, size_t begin, size_t end,
                 WordEncoder& words) {
  if (!pre_tokenizer.byte_level || (!pre_tokenizer.use_gpt2_pattern && !pre_tokenizer.add_prefix_space))
    return words.word(source, begin, end);
  const std::string_view piece = source.text.substr(begin, end - begin);
  if (!pre_tokenizer.add_prefix_space || piece[0] == ' ') {
    return scan_pattern(KnownPattern::Gpt2, piece,
                        [&](size_t b, size_t e) { words.word(source, begin + b, begin + e); });
  }
  if (!pre_tokenizer.use_gpt2_pattern) return words.word_after_space(source, begin, end);
  // The words are those of the piece with a space before it. In the piece they begin one byte earlier, except
  // the first, which begins with that space.
  const std::string spaced = " " + std::string(piece);
  scan_pattern(KnownPattern::Gpt2, spaced, [&](size_t b, size_t e) {
    if (b > 0) {
      words.word(source, begin + b - 1, begin + e - 1);
    } else {
      words.word_after_space(source, begin, begin + e - 1);
    }
  });
}

// Runs the stages of the pre-tokenizer from number `index` on, on a piece that is not empty. Each stage
// passes its pieces to the next one at once, so that no list of pieces is made.
void encode_stages(const PreTokenizer& pre_tokenizer, size_t index, const SourceText& source, size_t begin,
                   size_t end, bool tracked, WordEncoder& words) {
  if (index == pre_tokenizer.stages.size()) return encode_last(pre_tokenizer, source, begin, end, words);
  const PreTokenizer::Stage& stage = pre_tokenizer.stages[index];
  const auto cut = [&](const SourceText& whole, size_t from, size_t to) {
    stage.for_each_piece(whole.text.substr(from, to - from), [&](size_t b, size_t e) {
      encode_stages(pre_tokenizer, index + 1, whole, from + b, from + e, tracked, words);
    });
  };
  if (!stage.respelling) return cut(source, begin, end);
  AlignedText spelled = source.copy(begin, end, tracked);
  const int64_t first = source.span(begin, end).begin;
  stage.respelling->apply(spelled, first == 0);
  cut({spelled.text, first, tracked ? &spelled.origins : nullptr}, 0, spelled.text.size());
}

// Returns whether `span` overlaps one of `ranges`, which must be in order and apart.
bool overlaps(std::span<const ByteSpan> ranges, ByteSpan span) {
  const auto after = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const ByteSpan& range) { return range.end <= span.begin; });
  return after != ranges.end() && after->begin < span.end;
}

// Replaces each malformed sequence by U+FFFD, whose origin is the bytes that it replaces.
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
  const bool tracked = with_spans || !options.plain.empty() || !options.cuts.empty() ||
                       pipeline.pre_tokenizer.needs_origins(pipeline.normalizer != nullptr);
  // `source` refers to this text until the last word is encoded.
  std::optional<AlignedText> normalized;
  SourceText source{piece, offset};
  if (pipeline.normalizer && pipeline.normalizer->changes(piece)) {
    normalized.emplace(piece, offset, tracked);
    pipeline.normalizer->apply(*normalized);
    source = {normalized->text, offset, tracked ? &normalized->origins : nullptr};
  }
  WordEncoder words(*pipeline.model, with_spans, options.cuts, scratch, out);
  scratch.splits.clear();
  pipeline.added.normalized_matcher().split(
      source.text, options.parse_special,
      [&](size_t begin, size_t end) { return overlaps(options.plain, source.span(begin, end)); },
      scratch.splits);
  for (const AddedSplit& split : scratch.splits) {
    if (split.id >= 0) {
      words.added_token(split.id, source.span(split.begin, split.end));
    } else {
      encode_stages(pipeline.pre_tokenizer, 0, source, split.begin, split.end, tracked, words);
    }
  }
}

// [Note: from text to ids]
// A text passes these steps, in the order of `tokenizers`:
//  1. Malformed UTF-8 is replaced by U+FFFD.
//  2. Added tokens that are not `normalized` are cut out of the text as it is.
//  3. Each piece between them is normalised.
//  4. The other added tokens are cut out of the normalised piece (encode_piece()).
//  5. The pre-tokenizer cuts each remaining piece into words (encode_stages(), encode_last()).
//  6. BPE turns each word into ids ([Note: BPE merging] in bpe.cpp).
// The order matters: a normalizer must not see, and so change, a control token of step 2, and no word reaches
// across an added token. Spans and plain ranges are bytes of the caller's text, so each step that rewrites
// text keeps the origin of every byte (AlignedText), if anybody asks for it.
Encoding Tokenizer::Impl::encode_bare(std::string_view text, const EncodeOptions& options,
                                      bool with_spans) const {
  if (text.size() > kMaxTextBytes)
    throw Error(ErrorKind::Data, "TEXT-TOO-LONG", "one text is too long to encode")
        .got(std::to_string(text.size()) + " bytes")
        .need("at most " + std::to_string(kMaxTextBytes));
  std::optional<AlignedText> valid;
  if (valid_utf8_prefix(text) != text.size()) {
    TESSERA_ASSERT(options.plain.empty() && options.cuts.empty(), "plain ranges and cuts are of valid UTF-8");
    valid.emplace(repaired(text, with_spans));
    text = valid->text;
  }

  Encoding out;
  auto scratch = borrow_scratch();  // freed, not given back, if a step throws
  scratch->raw_splits.clear();
  pipeline.added.raw_matcher().split(
      text, options.parse_special,
      [&](size_t begin, size_t end) {
        return overlaps(options.plain, {static_cast<int64_t>(begin), static_cast<int64_t>(end)});
      },
      scratch->raw_splits);
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

  if (with_spans && valid) {
    // Spans so far are bytes of the repaired text; this maps them to the bytes that the caller gave.
    for (ByteSpan& span : out.spans) {
      const auto& origins = valid->origins;
      const auto begin = static_cast<size_t>(span.begin), end = static_cast<size_t>(span.end);
      if (begin < end) {
        span = {origins[begin].begin, origins[end - 1].end};
      } else {
        span.begin = span.end = begin < origins.size() ? origins[begin].begin : origins.back().end;
      }
    }
  }
  return out;
}

Encoding Tokenizer::Impl::encode(std::string_view text, const EncodeOptions& options, bool with_spans) const {
  Encoding bare = encode_bare(text, options, with_spans);
  if (!options.add_special_tokens || pipeline.post_processor.single.size() == 1) return bare;
  Encoding out;
  for (const PostPiece& piece : pipeline.post_processor.single) {
    if (piece.text == PostPiece::kNoText) {
      out.ids.push_back(piece.id);
      if (with_spans) out.spans.emplace_back();
    } else {
      out.ids.insert(out.ids.end(), bare.ids.begin(), bare.ids.end());
      out.spans.insert(out.spans.end(), bare.spans.begin(), bare.spans.end());
    }
  }
  return out;
}

PairEncoding Tokenizer::Impl::encode_pair(std::string_view first, std::optional<std::string_view> second,
                                          const EncodeOptions& options) const {
  const auto& pieces = second ? pipeline.post_processor.pair : pipeline.post_processor.single;
  if (pieces.empty())
    throw Error(ErrorKind::Model, "TOKENIZER-PAIR", "the tokenizer has no rule for pairs of texts")
        .in(place + ": $.post_processor")
        .need("a template whose `pair` holds A and B")
        .hint("encode the two texts as one, or take a tokenizer that is meant for pairs");
  EncodeOptions of_second = options;
  of_second.plain = {};
  of_second.cuts = {};
  const Encoding texts[] = {encode_bare(first, options, true),
                            second ? encode_bare(*second, of_second, true) : Encoding()};
  PairEncoding out;
  for (const PostPiece& piece : pieces) {
    if (piece.text == PostPiece::kNoText) {
      if (!options.add_special_tokens) continue;
      out.ids.push_back(piece.id);
      out.spans.emplace_back();
    } else {
      const Encoding& text = texts[piece.text];
      out.ids.insert(out.ids.end(), text.ids.begin(), text.ids.end());
      out.spans.insert(out.spans.end(), text.spans.begin(), text.spans.end());
    }
    out.type_ids.resize(out.ids.size(), piece.type_id);
    out.texts.resize(out.ids.size(), piece.text);
  }
  return out;
}

}  // namespace tessera::text
