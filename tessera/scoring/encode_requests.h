// Requests as token ids, cut where lm-evaluation-harness' model `hf` cuts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::scoring {

// Tokens of which the last `num_scored` are scored; at least one stands before them.
struct TokenRequest {
  std::vector<int64_t> ids;
  int64_t num_scored = 0;
};

class RequestEncoder {
 public:
  // `max_length` is the number of tokens that the model takes, at least 1. The tokenizer must outlive this.
  // Throws Error(Model) for a tokenizer with neither BOS nor EOS.
  RequestEncoder(const text::Tokenizer& tokenizer, int64_t max_length);

  // Returns the tokens of both texts: white space at the end of the context belongs to the continuation, and
  // the tokens of the continuation are those behind as many as the context alone has. An empty context is the
  // BOS token, or EOS where there is none. Leaves out tokens at the left that do not fit. Throws Error(Data)
  // if the continuation has no token, or more than fit.
  TokenRequest pair(const std::string& context, const std::string& continuation) const;
  // Returns the tokens of a whole text in windows of max_length, each token scored once; the first follows
  // BOS or EOS, and each later window one token of the window before.
  std::vector<TokenRequest> windows(const std::string& text) const;
  // Returns the last tokens of a prompt that leave room for `max_new_tokens`. Throws Error(Config) if there
  // is none.
  std::vector<int64_t> prompt(const std::string& text, int64_t max_new_tokens) const;

  int64_t max_length() const { return max_length_; }

 private:
  // Encodes with the tokenizer's own special tokens, unless the text begins with the prefix token.
  std::vector<int64_t> encode(const std::string& text) const;

  const text::Tokenizer& tokenizer_;
  int64_t max_length_, prefix_ = 0;
  std::string prefix_text_;
};

}  // namespace tessera::scoring
