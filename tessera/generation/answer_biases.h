// Numbers that the options of a request add to the logits of its next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/generation/draw_tokens.h"
#include "tessera/generation/sampling.h"

namespace tessera::generation {

struct BiasOptions {
  std::vector<TokenBias> logit_bias;  // added to the logits of these tokens, each of which is named once
  int64_t min_new_tokens = 0;         // no stop id is chosen before the answer has this many tokens
  // Texts, as their tokens, that the answer is not to hold: the last token of one is not chosen where the
  // answer ends in all of its others.
  std::vector<std::vector<int64_t>> bad_words;
};

// Follows one answer. What is added before the repetition penalty is the logit bias, and -infinity for tokens
// that must not be chosen. What is added after it are the presence and the frequency penalty, as OpenAI
// defines them: each token of the answer so far, which does not include the prompt, loses
// presence_penalty + frequency_penalty * (how often it occurs).
class AnswerBiases {
 public:
  AnswerBiases() = default;
  // Throws Error(Config, "SAMPLING") for a bias of an id outside the vocabulary, or outside -100 to 100. Stop
  // ids and bad words outside the vocabulary, which no answer can hold, are left out.
  AnswerBiases(const BiasOptions& options, const SamplingOptions& sampling,
               const std::vector<int64_t>& stop_ids, int64_t vocabulary);

  // Takes the next token of the answer, which is the last one of `answer`, the whole of it.
  void take(std::span<const int64_t> answer);
  // Both are valid until the next take().
  std::span<const TokenBias> before_penalty() const { return before_; }
  std::span<const TokenBias> after_penalty() const { return after_; }

 private:
  // Makes before_ for the token behind the answer.
  void settle(std::span<const int64_t> answer);
  void bar(int64_t id);

  BiasOptions options_;
  std::vector<int64_t> stop_ids_;
  double presence_ = 0.0, frequency_ = 0.0;
  std::vector<TokenBias> before_, after_;
  std::vector<int64_t> counts_;  // how often the answer holds each token of after_
};

}  // namespace tessera::generation
