#include "tessera/text/tokenizer/decoder.h"

#include <string_view>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/byte_level.h"

namespace tessera::text {

void DecoderRun::finish(TokenSink) {}

namespace {

// Returns the length of `text` without an unfinished character at its end.
size_t finished_prefix(std::string_view text) {
  size_t done = 0;
  while (true) {
    done += valid_utf8_prefix(text.substr(done));
    if (done == text.size()) return done;
    // A malformed sequence that reaches the end may be the start of a character.
    const size_t malformed = malformed_length(text.substr(done));
    if (done + malformed == text.size()) return done;
    done += malformed;
  }
}

// Gathers the parts of a joined token, for a step that must see tokens as wholes.
class WholeToken : public DecoderRun {
 public:
  explicit WholeToken(std::unique_ptr<DecoderRun> run) : run_(std::move(run)) {}

  void add(std::string text, TokenSink) override { token_ += text; }
  void finish(TokenSink sink) override {
    run_->add(std::move(token_), sink);
    run_->finish(sink);
  }

 private:
  std::unique_ptr<DecoderRun> run_;
  std::string token_;
};

}  // namespace

std::unique_ptr<DecoderRun> on_whole_tokens(std::unique_ptr<DecoderRun> run, bool joined) {
  if (joined) return std::make_unique<WholeToken>(std::move(run));
  return run;
}

namespace {

class ByteLevelRun : public DecoderRun {
 public:
  void add(std::string text, TokenSink sink) override {
    bytes_ += spelling_to_bytes(text);
    hand_on(finished_prefix(bytes_), sink);
  }
  void finish(TokenSink sink) override { hand_on(bytes_.size(), sink); }

 private:
  void hand_on(size_t size, TokenSink sink) {
    if (size > 0) sink(repair_utf8(std::string_view(bytes_).substr(0, size)));
    bytes_.erase(0, size);
  }

  std::string bytes_;
};

class ByteLevelDecoder : public DecoderStep {
 public:
  std::unique_ptr<DecoderRun> start(bool joined) const override {
    return on_whole_tokens(std::make_unique<ByteLevelRun>(), joined);
  }
  bool joins() const override { return true; }
  std::string token_bytes(std::string token) const override { return spelling_to_bytes(token); }
};

// Returns the byte of a token "<0x..>", or -1.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  int value = 0;
  for (const char c : {token[3], token[4]}) {
    const bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'F', lower = c >= 'a' && c <= 'f';
    if (!digit && !upper && !lower) return -1;
    value = value * 16 + (digit ? c - '0' : upper ? c - 'A' + 10 : c - 'a' + 10);
  }
  return value;
}

class ByteFallbackRun : public DecoderRun {
 public:
  explicit ByteFallbackRun(bool keeps_valid) : keeps_valid_(keeps_valid) {}

  void add(std::string text, TokenSink sink) override {
    const int byte = fallback_byte(text);
    if (byte >= 0) {
      bytes_ += static_cast<char>(byte);
    } else {
      finish(sink);
      sink(std::move(text));
    }
  }
  void finish(TokenSink sink) override {
    if (valid_utf8_prefix(bytes_) == bytes_.size()) {
      if (!bytes_.empty()) sink(bytes_);
    } else if (keeps_valid_) {
      for (std::string_view rest = bytes_; !rest.empty();) {
        const size_t valid = valid_utf8_prefix(rest);
        if (valid > 0) sink(std::string(rest.substr(0, valid)));
        rest.remove_prefix(valid);
        if (rest.empty()) break;
        sink("\xef\xbf\xbd");
        rest.remove_prefix(1);
      }
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) sink("\xef\xbf\xbd");
    }
    bytes_.clear();
  }

 private:
  bool keeps_valid_;
  std::string bytes_;
};

class ByteFallbackDecoder : public DecoderStep {
 public:
  explicit ByteFallbackDecoder(bool keeps_valid) : keeps_valid_(keeps_valid) {}

  std::unique_ptr<DecoderRun> start(bool joined) const override {
    return on_whole_tokens(std::make_unique<ByteFallbackRun>(keeps_valid_), joined);
  }
  std::string token_bytes(std::string token) const override {
    const int byte = fallback_byte(token);
    return byte >= 0 ? std::string(1, static_cast<char>(byte)) : token;
  }

 private:
  bool keeps_valid_;
};

class FuseRun : public DecoderRun {
 public:
  void add(std::string text, TokenSink sink) override { sink(std::move(text)); }
};

class FuseDecoder : public DecoderStep {
 public:
  std::unique_ptr<DecoderRun> start(bool) const override { return std::make_unique<FuseRun>(); }
  bool joins() const override { return true; }
  std::string token_bytes(std::string token) const override { return token; }
};

class StripRun : public DecoderRun {
 public:
  StripRun(const std::string& content, int64_t start, int64_t stop, bool joined)
      : content_(content), start_(start), stop_(stop), joined_(joined), start_left_(start) {}

  void add(std::string text, TokenSink sink) override {
    if (!joined_) start_left_ = start_;
    held_ += text;
    size_t begin = 0;
    while (start_left_ > 0 && begin < held_.size()) {
      if (held_.compare(begin, content_.size(), content_) != 0) {
        start_left_ = 0;
        break;
      }
      begin += content_.size();
      --start_left_;
    }
    held_.erase(0, begin);
    if (!joined_) return finish(sink);
    // The text may end here, so an end that finish() would strip is held back.
    hand_on(end_of_kept(), sink);
  }
  void finish(TokenSink sink) override {
    held_.resize(end_of_kept());
    hand_on(held_.size(), sink);
  }

 private:
  size_t end_of_kept() const {
    size_t end = held_.size();
    for (int64_t i = 0; i < stop_ && end >= content_.size() &&
                        held_.compare(end - content_.size(), content_.size(), content_) == 0;
         ++i)
      end -= content_.size();
    return end;
  }
  void hand_on(size_t size, TokenSink sink) {
    if (size > 0) sink(held_.substr(0, size));
    held_.erase(0, size);
  }

  std::string content_;
  int64_t start_, stop_;
  bool joined_;
  int64_t start_left_;
  std::string held_;
};

class StripDecoder : public DecoderStep {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  std::unique_ptr<DecoderRun> start(bool joined) const override {
    return std::make_unique<StripRun>(content_, start_, stop_, joined);
  }
  // A token in the middle of a text stands at neither end, so nothing is stripped.
  std::string token_bytes(std::string token) const override { return token; }

 private:
  std::string content_;
  int64_t start_, stop_;
};

// Largest text that a Replace step may make of a token, or of the part of a text that it holds.
constexpr size_t kMaxReplaced = size_t{64} << 20;

}  // namespace

std::string replace_all(const std::string& text, const std::string& pattern, const std::string& content) {
  if (pattern.empty() || text.find(pattern) == std::string::npos) return text;
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, done)) {
    out.append(text, done, at - done).append(content);
    done = at + pattern.size();
    if (out.size() > kMaxReplaced) {
      throw Error(ErrorKind::Model, "TOKENIZER-GROWTH", "the tokenizer's decoder makes a token too long")
          .in("tokenizer.json: $.decoder")
          .need("at most 64 MiB");
    }
  }
  return out.append(text, done);
}

namespace {

class ReplaceRun : public DecoderRun {
 public:
  ReplaceRun(const std::string& pattern, const std::string& content) : pattern_(pattern), content_(content) {}

  void add(std::string text, TokenSink sink) override { sink(replace_all(text, pattern_, content_)); }

 private:
  std::string pattern_, content_;
};

class ReplaceDecoder : public DecoderStep {
 public:
  ReplaceDecoder(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::unique_ptr<DecoderRun> start(bool joined) const override {
    // Parts of a joined token end between characters, so they never cut a pattern of one character.
    const bool is_one_character =
        !pattern_.empty() && decode_char(pattern_.data(), 0).size == pattern_.size();
    return on_whole_tokens(std::make_unique<ReplaceRun>(pattern_, content_), joined && !is_one_character);
  }
  std::string token_bytes(std::string token) const override { return replace_all(token, pattern_, content_); }

 private:
  std::string pattern_, content_;
};

class MetaspaceRun : public DecoderRun {
 public:
  MetaspaceRun(const std::string& replacement, bool had_prefix, bool joined)
      : replacement_(replacement), in_prefix_(had_prefix), joined_(joined) {}

  void add(std::string text, TokenSink sink) override {
    sink(replace_all(text, replacement_, in_prefix_ ? "" : " "));
    if (!joined_) in_prefix_ = false;
  }

 private:
  std::string replacement_;
  bool in_prefix_, joined_;
};

class MetaspaceDecoder : public DecoderStep {
 public:
  MetaspaceDecoder(std::string replacement, bool had_prefix)
      : replacement_(std::move(replacement)), had_prefix_(had_prefix) {}

  std::unique_ptr<DecoderRun> start(bool joined) const override {
    return std::make_unique<MetaspaceRun>(replacement_, had_prefix_, joined);
  }
  std::string token_bytes(std::string token) const override { return replace_all(token, replacement_, " "); }

 private:
  std::string replacement_;
  bool had_prefix_;
};

// Joins tokens by spaces, as `tokenizers` does without a decoder.
class SpaceJoinRun : public DecoderRun {
 public:
  void add(std::string text, TokenSink sink) override {
    sink(is_first_ ? std::move(text) : " " + text);
    is_first_ = false;
  }

 private:
  bool is_first_ = true;
};

}  // namespace

std::string TokenDecoder::token_bytes(const std::string& token) const {
  std::string bytes = token;
  for (const auto& step : steps) bytes = step->token_bytes(std::move(bytes));
  return bytes;
}

DecoderStream::DecoderStream(const TokenDecoder& decoder) {
  if (!decoder.present) runs_.push_back(std::make_unique<SpaceJoinRun>());
  bool joined = false;
  for (const auto& step : decoder.steps) {
    runs_.push_back(step->start(joined));
    joined = joined || step->joins();
  }
}

void DecoderStream::add(std::string token, std::string& out) { pass(0, std::move(token), out); }

// The steps finish in order, since the text that one step still holds must pass through the steps behind it.
void DecoderStream::finish(std::string& out) {
  for (size_t i = 0; i < runs_.size(); ++i)
    runs_[i]->finish([&](std::string text) { pass(i + 1, std::move(text), out); });
}

void DecoderStream::pass(size_t step, std::string text, std::string& out) {
  if (step == runs_.size()) {
    out += text;
    return;
  }
  runs_[step]->add(std::move(text), [&](std::string next) { pass(step + 1, std::move(next), out); });
}

std::unique_ptr<DecoderStep> make_byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }
std::unique_ptr<DecoderStep> make_byte_fallback_decoder(bool keeps_valid) {
  return std::make_unique<ByteFallbackDecoder>(keeps_valid);
}
std::unique_ptr<DecoderStep> make_fuse_decoder() { return std::make_unique<FuseDecoder>(); }
std::unique_ptr<DecoderStep> make_strip_decoder(std::string content, int64_t start, int64_t stop) {
  return std::make_unique<StripDecoder>(std::move(content), start, stop);
}
std::unique_ptr<DecoderStep> make_replace_decoder(std::string pattern, std::string content) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}
std::unique_ptr<DecoderStep> make_metaspace_decoder(std::string replacement, bool had_prefix) {
  return std::make_unique<MetaspaceDecoder>(std::move(replacement), had_prefix);
}

}  // namespace tessera::text
