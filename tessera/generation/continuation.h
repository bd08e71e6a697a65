// The continuation of one prompt, token by token: what was asked, and what has come of it so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/generation/answer_biases.h"
#include "tessera/generation/draw_tokens.h"
#include "tessera/generation/sampling.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/scoring/token_log_probs.h"
#include "tessera/text/constraint/constraint.h"

namespace tessera::generation {

// Why a generation ended: at a stop id, because its constraint lets nothing follow, at its largest number of
// tokens, or by a callback, cancel() or an exception.
enum class FinishReason { Stop, Complete, Length, Callback };

struct GenerateOptions {
  SamplingOptions sampling;
  BiasOptions biases = {};
  int64_t max_new_tokens = 256;
  // A Generator that shares pages shares them among requests of one salt alone.
  std::string cache_salt;
  // The adapter that the text is made with (CausalLM::set_adapter_rows()). Pages are not shared among
  // adapters.
  int64_t adapter = nn::AdapterRows::kNoAdapter;
  // Ids that end the text; they are not part of the result. Empty = the model's eos_token_ids; an id that is
  // no token, such as -1, ends nothing.
  std::vector<int64_t> stop_ids;
  // The text has to match it: tokens that do not lead on have no probability, and stop ids have one exactly
  // where the text may end. Null = any text. Only the thread that generates may use it meanwhile.
  std::shared_ptr<text::Constraint> constraint = nullptr;
  // Called with every new token as it comes, except stop ids; returning false ends the generation. It may
  // call Generator::cancel(), and nothing else of a Generator or a Session.
  std::function<bool(int64_t)> on_token;
  // Log-probabilities (token_log_probs.h), which a Generator tells and a Session does not: of every chosen
  // token, also of a stop id, before on_token is called for it; and of the prompt's tokens behind the first,
  // before the first chosen one. Each comes with the num_log_probs likeliest tokens. Not wanted unless set.
  int64_t num_log_probs = 0;
  std::function<void(int64_t id, const scoring::TokenLogProbs&)> on_log_probs = nullptr;
  std::function<void(const std::vector<scoring::TokenLogProbs>&)> on_prompt_log_probs = nullptr;
};

struct Generation {
  std::vector<int64_t> token_ids;  // the new tokens, without the prompt
  FinishReason reason = FinishReason::Length;
  int64_t cached_tokens = 0;  // tokens of the prompt that a Generator found in its cache
};

struct GenerationRequest {
  std::vector<int64_t> prompt;
  GenerateOptions options;
};

struct Continuation {
  // Throws Error(Config) for sampling options outside their ranges or an empty prompt, Error(Data) for ids
  // outside the vocabulary, Error(Model) for a prompt longer than the model can generate after, and what
  // AnswerBiases and ConstraintState::allowed() throw.
  Continuation(const models::CausalLM& model, GenerationRequest request);

  // The draw is valid until the next call of accept().
  TokenDraw next_draw() const {
    return {options.sampling, result.token_ids.size(), allowed_, biases_.before_penalty(),
            biases_.after_penalty()};
  }
  // Returns the next token, which is row `row` of the choice for next_draw(). Throws what
  // TokenChoice::choose() throws.
  int64_t choose(const TokenChoice& choice, int64_t row) const;
  // Returns the log-probabilities with as many of the likeliest tokens as this request wants; others of its
  // batch may want more.
  scoring::TokenLogProbs with_wanted_top(scoring::TokenLogProbs log_probs) const;
  // Takes the next token; returns whether the text goes on. Throws what the callback and
  // ConstraintState::allowed() throw.
  bool accept(int64_t token);

  std::vector<int64_t> prompt;
  GenerateOptions options;
  int64_t budget = 0;  // the most new tokens; there are none if it is not positive
  Generation result;

 private:
  std::optional<text::ConstraintState> constraint_;
  std::vector<uint64_t> allowed_;  // tokens that may come next, if there is a constraint
  AnswerBiases biases_;
};

}  // namespace tessera::generation
