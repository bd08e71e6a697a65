#include <unordered_set>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/tokenizer/tokenizer_json.h"

namespace tessera::text {

TokenizerDocument::TokenizerDocument() : root(std::make_unique<nlohmann::json>()) {}
TokenizerDocument::TokenizerDocument(TokenizerDocument&&) noexcept = default;
TokenizerDocument::~TokenizerDocument() = default;

namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;
// Ten times the sizes of the largest tokenizers in use.
constexpr size_t kMaxVocab = 4 << 20, kMaxMerges = 8 << 20, kMaxValues = 4 << 20;

// Receives the events of the parser. The vocabulary and the merges go to flat lists, since a tree of 150,000
// entries is slow to build and hides keys given twice.
class DocumentBuilder : public nlohmann::json_sax<json> {
 public:
  DocumentBuilder(std::string_view text, const std::string& file, TokenizerDocument& out)
      : text_(text), file_(file), out_(out) {}

  bool null() override { return scalar(json()); }
  bool boolean(bool value) override { return scalar(json(value)); }
  bool number_integer(number_integer_t value) override {
    if (state_ == State::ScoredPair) return score(static_cast<double>(value));
    return state_ == State::Vocab ? vocab_id(value) : scalar(json(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::ScoredPair) return score(static_cast<double>(value));
    return state_ == State::Vocab ? vocab_id(static_cast<int64_t>(std::min<uint64_t>(value, kMaxTokenId)))
                                  : scalar(json(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return state_ == State::ScoredPair ? score(value) : scalar(json(value));
  }
  bool binary(binary_t&) override { return false; }

  bool string(string_t& value) override {
    switch (state_) {
      case State::Merges: return merge_line(value);
      case State::MergePair: pair_.push_back(std::move(value)); return true;
      case State::ScoredPair:
        if (!pair_.empty()) fail_scored();
        pair_.push_back(std::move(value));
        return true;
      default: return scalar(json(std::move(value)));
    }
  }

  bool start_object(std::size_t) override {
    if (state_ == State::Tree && at_model_key("vocab")) {
      state_ = State::Vocab;
      out_.has_vocab = true;
      return true;
    }
    return open(json::object());
  }
  bool end_object() override {
    if (state_ == State::Vocab) {
      state_ = State::Tree;
    } else {
      frames_.pop_back();
    }
    return true;
  }
  bool key(string_t& value) override {
    if (state_ == State::Vocab) {
      token_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    const bool is_table = at_model() && ((value == "vocab" && (out_.has_vocab || out_.has_scores)) ||
                                         (value == "merges" && out_.has_merges));
    frame.key = std::move(value);
    if (is_table || frame.value->contains(frame.key)) fail("key given twice");
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::Merges) {
      check_merges();
      state_ = State::MergePair;
      pair_.clear();
      return true;
    }
    if (state_ == State::Scored) {
      if (out_.scored.size() >= kMaxVocab) fail_vocab("more than " + std::to_string(kMaxVocab) + " tokens");
      state_ = State::ScoredPair;
      pair_.clear();
      num_scores_ = 0;
      return true;
    }
    if (state_ == State::Tree && at_model_key("vocab")) {
      state_ = State::Scored;
      out_.has_scores = true;
      return true;
    }
    if (state_ == State::Tree && at_model_key("merges")) {
      state_ = State::Merges;
      out_.has_merges = true;
      return true;
    }
    return open(json::array());
  }
  bool end_array() override {
    if (state_ == State::MergePair) {
      if (pair_.size() != 2) fail_merge("a merge is not a pair");
      out_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      state_ = State::Merges;
    } else if (state_ == State::ScoredPair) {
      if (num_scores_ != 1) fail_scored();
      out_.scored.emplace_back(std::move(pair_[0]), score_);
      state_ = State::Scored;
    } else if (state_ == State::Merges || state_ == State::Scored) {
      state_ = State::Tree;
    } else {
      frames_.pop_back();
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    // The library's message begins with the position, which refuse() tells too.
    std::string what = error.what();
    const size_t colon = what.find(": ");
    if (colon != std::string::npos) what = what.substr(colon + 2);
    refuse(position > 0 ? position - 1 : 0, what);
  }

  // Throws an error at a byte of the text, counted from 0.
  [[noreturn]] void refuse(size_t position, const std::string& what) const {
    int64_t line = 1, column = 1;
    for (size_t i = 0; i < position && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      }
    }
    throw Error(ErrorKind::Model, "TOKENIZER-JSON", "not valid JSON: " + what).at(file_, line, column);
  }

 private:
  enum class State { Tree, Vocab, Scored, ScoredPair, Merges, MergePair };
  struct Frame {
    json* value;
    std::string key;
  };

  bool at_model() const {
    return frames_.size() == 2 && frames_[0].key == "model" && frames_[0].value->is_object();
  }
  bool at_model_key(std::string_view key) const { return at_model() && frames_[1].key == key; }

  json* insert(json value) {
    if (++num_values_ > kMaxValues) fail("more than " + std::to_string(kMaxValues) + " values");
    if (frames_.empty()) {
      *out_.root = std::move(value);
      return out_.root.get();
    }
    Frame& frame = frames_.back();
    if (frame.value->is_array()) {
      frame.value->push_back(std::move(value));
      return &frame.value->back();
    }
    return &((*frame.value)[frame.key] = std::move(value));
  }

  bool scalar(json value) {
    if (state_ == State::Vocab) fail_vocab("an id is not a whole number");
    if (state_ == State::Scored || state_ == State::ScoredPair) fail_scored();
    if (state_ == State::Merges || state_ == State::MergePair) fail_merge("a merge is not made of strings");
    insert(std::move(value));
    return true;
  }

  bool open(json value) {
    if (state_ == State::Vocab) fail_vocab("an id is not a whole number");
    if (state_ == State::Scored || state_ == State::ScoredPair) fail_scored();
    if (state_ != State::Tree) fail_merge("a merge is not made of strings");
    if (frames_.size() >= kMaxDepth) fail("nested too deeply");
    json* place = insert(std::move(value));
    frames_.push_back({place, {}});
    return true;
  }

  bool vocab_id(int64_t id) {
    if (id < 0 || id >= kMaxTokenId) fail_vocab("an id is out of range");
    if (out_.vocab.size() >= kMaxVocab) fail_vocab("more than " + std::to_string(kMaxVocab) + " tokens");
    out_.vocab.emplace_back(std::move(token_), id);
    return true;
  }

  bool score(double value) {
    if (pair_.size() != 1 || ++num_scores_ > 1) fail_scored();
    score_ = value;
    return true;
  }

  void check_merges() const {
    if (out_.merges.size() >= kMaxMerges) fail_merge("more than " + std::to_string(kMaxMerges) + " merges");
  }

  bool merge_line(const std::string& line) {
    check_merges();
    if (line.starts_with("#version")) return true;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      fail_merge("a merge is not two tokens with a space between");
    out_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    std::string path = "$";
    for (const Frame& frame : frames_) {
      path += frame.value->is_array() ? "[" + std::to_string(frame.value->size() - 1) + "]" : "." + frame.key;
      if (path.size() > 200) break;
    }
    throw Error(ErrorKind::Model, "TOKENIZER-JSON", what).in(file_ + ": " + path);
  }
  [[noreturn]] void fail_vocab(const std::string& what) const {
    throw Error(ErrorKind::Model, "TOKENIZER-VOCAB", what)
        .in(file_ + ": $.model.vocab")
        .got("token '" + token_ + "'")
        .need("an id from 0 to " + std::to_string(kMaxTokenId - 1));
  }
  [[noreturn]] void fail_scored() const {
    throw Error(ErrorKind::Model, "TOKENIZER-VOCAB",
                "an entry of the vocabulary is not a token and its score")
        .in(file_ + ": $.model.vocab[" + std::to_string(out_.scored.size()) + "]");
  }
  [[noreturn]] void fail_merge(const std::string& what) const {
    throw Error(ErrorKind::Model, "TOKENIZER-MERGES", what)
        .in(file_ + ": $.model.merges[" + std::to_string(out_.merges.size()) + "]");
  }

  std::string_view text_;
  const std::string& file_;
  TokenizerDocument& out_;
  State state_ = State::Tree;
  std::vector<Frame> frames_;
  std::string token_;
  size_t num_values_ = 0;
  std::vector<std::string> pair_;
  int num_scores_ = 0;  // of the entry that is being read
  double score_ = 0.0;
};

}  // namespace

TokenizerDocument parse_tokenizer_document(std::string_view text, const std::string& file) {
  TokenizerDocument document;
  DocumentBuilder builder(text, file, document);
  // The parser itself would skip a byte-order mark and stop at a zero byte, both without an error.
  if (text.starts_with("\xef\xbb\xbf")) builder.refuse(0, "a byte-order mark before the document");
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    builder.refuse(zero, "a zero byte");
  json::sax_parse(text.begin(), text.end(), &builder);
  return document;
}

}  // namespace tessera::text
