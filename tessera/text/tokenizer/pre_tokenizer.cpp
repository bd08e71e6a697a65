#include "tessera/text/tokenizer/pre_tokenizer.h"

#include <optional>

#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/regex.h"
#include "tessera/text/tokenizer/unicode.h"
#include "tessera/text/tokenizer/unicode_of_bert.h"

namespace tessera::text {
namespace {

// Turns a stream of matches, and of the texts between them, into pieces.
class DelimiterMerger {
 public:
  DelimiterMerger(SplitBehavior behavior, RangeSink sink) : behavior_(behavior), sink_(sink) {}

  // Adds the next range. An empty one makes no piece by itself, but keeps its neighbours apart.
  void add(size_t begin, size_t end, bool is_match) {
    bool joins = false;  // the range joins the piece that is held back
    switch (behavior_) {
      case SplitBehavior::Removed:
        if (!is_match) emit(begin, end);
        return;
      case SplitBehavior::Isolated: emit(begin, end); return;
      case SplitBehavior::Contiguous: joins = is_match == last_is_match_; break;
      case SplitBehavior::MergedWithPrevious: joins = is_match && !last_is_match_; break;
      case SplitBehavior::MergedWithNext: joins = !is_match && last_is_match_; break;
    }
    if (!joins || !is_holding_) {
      finish();
      begin_ = begin;
    }
    end_ = end;
    is_holding_ = true;
    last_is_match_ = is_match;
  }

  void finish() {
    if (is_holding_) emit(begin_, end_);
    is_holding_ = false;
  }

 private:
  void emit(size_t begin, size_t end) {
    if (begin < end) sink_(begin, end);
  }

  SplitBehavior behavior_;
  RangeSink sink_;
  size_t begin_ = 0, end_ = 0;
  bool is_holding_ = false, last_is_match_ = false;
};

class PatternSplitter : public Splitter {
 public:
  PatternSplitter(const std::string& pattern, bool is_regex, SplitBehavior behavior, bool invert,
                  const std::string& place)
      : literal_(pattern), behavior_(behavior), invert_(invert) {
    if (!is_regex) return;
    known_ = find_known_pattern(pattern);
    if (!known_) regex_.emplace(pattern, place);
  }

  void split(std::string_view text, RangeSink sink) const override {
    // The known patterns match all of the text, so their matches are the pieces.
    if (known_ && (behavior_ == SplitBehavior::Isolated || (behavior_ == SplitBehavior::Removed && invert_)))
      return scan_pattern(*known_, text, sink);
    DelimiterMerger merger(behavior_, sink);
    size_t done = 0;
    // Falcon's expression is run on every word, and hardly any has a digit.
    const bool finds_none =
        literal_ == "[0-9][0-9][0-9]" && text.find_first_of("0123456789") == std::string_view::npos;
    const auto match = [&](size_t begin, size_t end) {
      if (done < begin) merger.add(done, begin, invert_);
      merger.add(begin, end, !invert_);
      done = end;
    };
    if (known_) {
      scan_pattern(*known_, text, match);
    } else if (finds_none) {
      // No delimiter cuts the text.
    } else if (regex_) {
      regex_->for_each_match(text, match);
    } else if (!literal_.empty()) {
      for (size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, done))
        match(at, at + literal_.size());
    }
    if (done < text.size()) merger.add(done, text.size(), invert_);
    merger.finish();
  }

 private:
  std::string literal_;
  SplitBehavior behavior_;
  bool invert_;
  std::optional<KnownPattern> known_;
  std::optional<Regex> regex_;
};

// Splits at the characters that have `flag` in the table.
template <class Table>
class FlagSplitter : public Splitter {
 public:
  FlagSplitter(uint8_t flag, SplitBehavior behavior) : flag_(flag), behavior_(behavior) {}

  void split(std::string_view text, RangeSink sink) const override {
    const Table& table = Table::instance();
    DelimiterMerger merger(behavior_, sink);
    size_t done = 0;
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = decode_char(text.data(), i);
      if (table.flags(c.code_point) & flag_) {
        if (done < i) merger.add(done, i, false);
        merger.add(i, i + c.size, true);
        done = i + c.size;
      }
      i += c.size;
    }
    if (done < text.size()) merger.add(done, text.size(), false);
    merger.finish();
  }

 private:
  uint8_t flag_;
  SplitBehavior behavior_;
};

class BertSplitter : public Splitter {
 public:
  void split(std::string_view text, RangeSink sink) const override {
    const BertCharTable& table = BertCharTable::instance();
    size_t begin = 0;  // of the word that is being read
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = decode_char(text.data(), i);
      const uint8_t flags = table.flags(c.code_point);
      const size_t end = i + c.size;
      if (flags & (kBertSpace | kBertPunctuation)) {
        if (begin < i) sink(begin, i);
        if (flags & kBertPunctuation) sink(i, end);
        begin = end;
      }
      i = end;
    }
    if (begin < text.size()) sink(begin, text.size());
  }
};

class ScriptSplitter : public Splitter {
 public:
  void split(std::string_view text, RangeSink sink) const override {
    constexpr int32_t kNone = -2;
    int32_t last = kNone;
    size_t begin = 0;
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = decode_char(text.data(), i);
      const int32_t script = script_of_unigram(c.code_point);
      if (script >= 0 && script != last) {
        if (last != kNone) sink(begin, i);
        begin = i;
        last = script;
      }
      i += c.size;
    }
    if (last != kNone) sink(begin, text.size());
  }
};

class FixedLengthSplitter : public Splitter {
 public:
  explicit FixedLengthSplitter(size_t length) : length_(length) {}

  void split(std::string_view text, RangeSink sink) const override {
    size_t begin = 0, count = 0;
    for (size_t i = 0; i < text.size();) {
      i += decode_char(text.data(), i).size;
      if (++count < length_ && i < text.size()) continue;
      sink(begin, i);
      begin = i;
      count = 0;
    }
  }

 private:
  size_t length_;
};

class WhitespaceSplitter : public Splitter {
 public:
  void split(std::string_view text, RangeSink sink) const override {
    const CharTable& table = CharTable::instance();
    size_t begin = 0;
    uint8_t kind = 0;  // kind of the run since `begin`: kSpace, kWord, or 0 for other characters
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = decode_char(text.data(), i);
      const uint8_t flags = table.flags(c.code_point);
      const uint8_t next = flags & kWord ? kWord : flags & kSpace;
      if (i > 0 && next != kind) {
        if (kind != kSpace) sink(begin, i);
        begin = i;
      }
      kind = next;
      i += c.size;
    }
    if (kind != kSpace) sink(begin, text.size());
  }
};

void run_splitters(const std::vector<std::unique_ptr<Splitter>>& splitters, size_t index,
                   std::string_view text, size_t offset, RangeSink sink) {
  if (index == splitters.size()) return sink(offset, offset + text.size());
  const auto next = [&](size_t begin, size_t end) {
    run_splitters(splitters, index + 1, text.substr(begin, end - begin), offset + begin, sink);
  };
  splitters[index]->split(text, next);
}

}  // namespace

void PreTokenizer::Stage::for_each_piece(std::string_view text, RangeSink sink) const {
  run_splitters(splitters, 0, text, 0, sink);
}

bool PreTokenizer::needs_origins(bool has_normalizer) const {
  int num_rewrites = has_normalizer ? 1 : 0;
  for (const Stage& stage : stages) {
    if (!stage.respelling) continue;
    if (stage.respelling->needs_start() && num_rewrites > 0) return true;
    ++num_rewrites;
  }
  return false;
}

std::unique_ptr<Splitter> make_split(const std::string& pattern, bool is_regex, SplitBehavior behavior,
                                     bool invert, const std::string& place) {
  return std::make_unique<PatternSplitter>(pattern, is_regex, behavior, invert, place);
}
std::unique_ptr<Splitter> make_digits(bool individual) {
  return std::make_unique<FlagSplitter<CharTable>>(
      kNumeric, individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous);
}
std::unique_ptr<Splitter> make_whitespace() { return std::make_unique<WhitespaceSplitter>(); }
std::unique_ptr<Splitter> make_punctuation(SplitBehavior behavior) {
  return std::make_unique<FlagSplitter<BertCharTable>>(kBertPunctuation, behavior);
}
std::unique_ptr<Splitter> make_bert_split() { return std::make_unique<BertSplitter>(); }
std::unique_ptr<Splitter> make_script_split() { return std::make_unique<ScriptSplitter>(); }
std::unique_ptr<Splitter> make_fixed_length(size_t length) {
  return std::make_unique<FixedLengthSplitter>(length);
}
std::unique_ptr<Splitter> make_whitespace_split() {
  return std::make_unique<FlagSplitter<CharTable>>(kSpace, SplitBehavior::Removed);
}

}  // namespace tessera::text
