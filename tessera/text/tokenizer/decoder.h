// Turns token texts back into text, all at once or as they come.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/function_ref.h"
#include "tessera/text/tokenizer/regex.h"

namespace tessera::text {

// Receives the output of a step: whole tokens, or, behind a step that joins them, further parts of one token.
using TokenSink = FunctionRef<void(std::string text)>;

// The state of one decoding step during the decoding of one text.
class DecoderRun {
 public:
  virtual ~DecoderRun() = default;
  virtual void add(std::string text, TokenSink sink) = 0;
  // Hands on the text that was held back; call it when the text has ended.
  virtual void finish(TokenSink sink);
};

// One step of decoding, which rewrites the list of token texts. Thread-safe.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // Begins a text. `joined` tells that a step before this one has joined all tokens into one, whose parts
  // come.
  virtual std::unique_ptr<DecoderRun> start(bool joined) const = 0;
  virtual bool joins() const { return false; }
  // Returns the bytes that one token stands for in the middle of a text, before they are repaired to UTF-8.
  virtual std::string token_bytes(std::string token) const = 0;
};

std::unique_ptr<DecoderStep> make_byte_level_decoder();
// Turns "<0x..>" tokens into bytes. If a run of them is not UTF-8, each of its bytes becomes U+FFFD; with
// `keeps_valid`, only the bytes of no character do.
std::unique_ptr<DecoderStep> make_byte_fallback_decoder(bool keeps_valid = false);
std::unique_ptr<DecoderStep> make_fuse_decoder();
// Takes `content` (one character) off the ends of each token, up to `start` times in front and `stop` times
// behind.
std::unique_ptr<DecoderStep> make_strip_decoder(std::string content, int64_t start, int64_t stop);
std::unique_ptr<DecoderStep> make_replace_decoder(std::string pattern, std::string content);
// Replaces every match in each token. Does not see matches that reach over the end of a token, or over the
// end of a part where tokens were joined.
std::unique_ptr<DecoderStep> make_regex_decoder(Regex regex, std::string content);
// Joins the pieces of words: takes `prefix` off the tokens that begin with it, and puts a space before the
// others; `cleanup` then takes the space before punctuation and English contractions away.
std::unique_ptr<DecoderStep> make_word_piece_decoder(std::string prefix, bool cleanup);
// Turns `suffix`, which ends a word, into a space, and drops it in the last token.
std::unique_ptr<DecoderStep> make_suffix_decoder(std::string suffix);
// Drops repetitions of a token and `pad`; `cleanup` is that of WordPiece, and turns `delimiter` into a space.
std::unique_ptr<DecoderStep> make_ctc_decoder(std::string pad, std::string delimiter, bool cleanup);
// Replaces every occurrence of `pattern`. Throws Error(Model) if the text grows beyond 64 MiB.
std::string replace_all(const std::string& text, const std::string& pattern, const std::string& content);
// Gathers the parts of a joined token for a step that must see tokens as wholes.
std::unique_ptr<DecoderRun> on_whole_tokens(std::unique_ptr<DecoderRun> run, bool joined);
// Turns `replacement` (one character) into a space; in the first token it is dropped instead, if
// `had_prefix`.
std::unique_ptr<DecoderStep> make_metaspace_decoder(std::string replacement, bool had_prefix);

// The steps of a tokenizer's decoder, in order. If the file has no decoder (`present` is false), tokens are
// joined by spaces.
struct TokenDecoder {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  bool present = false;

  std::string token_bytes(const std::string& token) const;
};

// The state of all steps during one text. The pieces that add() and finish() append are, joined, the text;
// add() holds back the text that later tokens may still change. The decoder must outlive it.
class DecoderStream {
 public:
  explicit DecoderStream(const TokenDecoder& decoder);

  void add(std::string token, std::string& out);
  void finish(std::string& out);

 private:
  void pass(size_t step, std::string text, std::string& out);

  std::vector<std::unique_ptr<DecoderRun>> runs_;
};

}  // namespace tessera::text
