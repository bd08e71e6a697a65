// The decoding steps of tokenizers that mark the beginnings or the ends of words.
#include <optional>
#include <utility>

#include "tessera/text/tokenizer/decoder.h"

namespace tessera::text {
namespace {

// Undoes the spaces that the division into words has put before punctuation and English contractions
// [huggingface/tokenizers decoders/wordpiece.rs].
std::string clean_up(std::string text) {
  constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  if (text.find(' ') == std::string::npos) return text;
  for (const auto& [pattern, content] : kRules) text = replace_all(text, pattern, content);
  return text;
}

// A step that rewrites each token, which may depend on the token before.
template <class Rule>
class TokenwiseDecoder : public DecoderStep {
 public:
  explicit TokenwiseDecoder(Rule rule) : rule_(std::make_shared<const Rule>(std::move(rule))) {}

  std::unique_ptr<DecoderRun> start(bool joined) const override {
    return on_whole_tokens(std::make_unique<Run>(rule_), joined);
  }
  std::string token_bytes(std::string token) const override { return rule_->in_text(std::move(token)); }

 private:
  class Run : public DecoderRun {
   public:
    explicit Run(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
    void add(std::string text, TokenSink sink) override { rule_->add(std::move(text), before_, sink); }

   private:
    std::shared_ptr<const Rule> rule_;
    std::optional<std::string> before_;  // the token before, once there was one
  };

  std::shared_ptr<const Rule> rule_;
};

struct WordPieceRule {
  std::string prefix;
  bool cleanup;

  void add(std::string token, std::optional<std::string>& before, TokenSink sink) const {
    const bool is_first = !before;
    before.emplace();
    sink(is_first ? finished(std::move(token)) : in_text(std::move(token)));
  }
  std::string in_text(std::string token) const {
    return finished(token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token);
  }
  std::string finished(std::string token) const { return cleanup ? clean_up(std::move(token)) : token; }
};

struct CtcRule {
  std::string pad, delimiter;
  bool cleanup;

  void add(std::string token, std::optional<std::string>& before, TokenSink sink) const {
    if (before == token) return;
    before = token;
    std::string text = in_text(std::move(token));
    if (!text.empty()) sink(std::move(text));
  }
  std::string in_text(std::string token) const {
    std::string text = replace_all(token, pad, "");
    return cleanup ? replace_all(clean_up(std::move(text)), delimiter, " ") : text;
  }
};

struct RegexRule {
  Regex regex;
  std::string content;

  void add(std::string token, std::optional<std::string>&, TokenSink sink) const {
    sink(in_text(std::move(token)));
  }
  std::string in_text(std::string token) const {
    std::string out;
    size_t done = 0;
    regex.for_each_match(token, [&](size_t begin, size_t end) {
      out.append(token, done, begin - done).append(content);
      done = end;
    });
    return out.append(token, done);
  }
};

// Holds the end of each token back from its first suffix on, until it is known whether another one follows.
class SuffixRun : public DecoderRun {
 public:
  explicit SuffixRun(std::string suffix) : suffix_(std::move(suffix)) {}

  void add(std::string text, TokenSink sink) override {
    hand_on(" ", sink);
    const size_t held = suffix_.empty() ? std::string::npos : text.find(suffix_);
    if (held != std::string::npos) {
      held_ = text.substr(held);
      text.resize(held);
    }
    if (!text.empty()) sink(std::move(text));
  }
  void finish(TokenSink sink) override { hand_on("", sink); }

 private:
  void hand_on(const char* content, TokenSink sink) {
    if (!held_.empty()) sink(replace_all(held_, suffix_, content));
    held_.clear();
  }

  std::string suffix_, held_;
};

class SuffixDecoder : public DecoderStep {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}

  std::unique_ptr<DecoderRun> start(bool joined) const override {
    return on_whole_tokens(std::make_unique<SuffixRun>(suffix_), joined);
  }
  std::string token_bytes(std::string token) const override { return replace_all(token, suffix_, " "); }

 private:
  std::string suffix_;
};

}  // namespace

std::unique_ptr<DecoderStep> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<TokenwiseDecoder<WordPieceRule>>(WordPieceRule{std::move(prefix), cleanup});
}
std::unique_ptr<DecoderStep> make_ctc_decoder(std::string pad, std::string delimiter, bool cleanup) {
  return std::make_unique<TokenwiseDecoder<CtcRule>>(CtcRule{std::move(pad), std::move(delimiter), cleanup});
}
std::unique_ptr<DecoderStep> make_regex_decoder(Regex regex, std::string content) {
  return std::make_unique<TokenwiseDecoder<RegexRule>>(RegexRule{std::move(regex), std::move(content)});
}
std::unique_ptr<DecoderStep> make_suffix_decoder(std::string suffix) {
  return std::make_unique<SuffixDecoder>(std::move(suffix));
}

}  // namespace tessera::text
