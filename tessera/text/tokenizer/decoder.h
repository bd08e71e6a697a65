// From token texts back to text, all at once or as they come.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/function_ref.h"

namespace tessera::text {

// Receives what a step has made so far: whole tokens, or, behind a step that joins them, further parts of
// one.
using TokenSink = FunctionRef<void(std::string text)>;

// One step at work on the tokens of one text.
class DecoderRun {
 public:
  virtual ~DecoderRun() = default;
  virtual void add(std::string text, TokenSink sink) = 0;
  // The text has ended: hands on what was held back.
  virtual void finish(TokenSink sink);
};

// One step of decoding: rewrites the list of token texts. Thread-safe.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // `joined`: a step before has made one token of all; what comes are its parts.
  virtual std::unique_ptr<DecoderRun> start(bool joined) const = 0;
  virtual bool joins() const { return false; }
  // The bytes that one token stands for in the middle of a text, before they are repaired to UTF-8.
  virtual std::string token_bytes(std::string token) const = 0;
};

std::unique_ptr<DecoderStep> make_byte_level_decoder();
// "<0x..>" tokens become the byte; runs of them that are not UTF-8 become U+FFFD each.
std::unique_ptr<DecoderStep> make_byte_fallback_decoder();
std::unique_ptr<DecoderStep> make_fuse_decoder();
// Takes up to `start` and `stop` times `content` (one character) off the ends of each token.
std::unique_ptr<DecoderStep> make_strip_decoder(std::string content, int64_t start, int64_t stop);
std::unique_ptr<DecoderStep> make_replace_decoder(std::string pattern, std::string content);
// `replacement` (one character) becomes a space; in the first token it goes, if `had_prefix`.
std::unique_ptr<DecoderStep> make_metaspace_decoder(std::string replacement, bool had_prefix);

// The steps in order; without any, tokens are joined by spaces.
struct Decoder {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  bool present = false;

  std::string token_bytes(const std::string& token) const;
};

// All steps at work on one text. What add() and finish() append, joined, is the text; add() holds back what
// later tokens may still change. The decoder must outlive it.
class DecoderStream {
 public:
  explicit DecoderStream(const Decoder& decoder);

  void add(std::string token, std::string& out);
  void finish(std::string& out);

 private:
  void pass(size_t step, std::string text, std::string& out);

  std::vector<std::unique_ptr<DecoderRun>> runs_;
};

}  // namespace tessera::text
