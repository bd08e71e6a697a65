// The continuation of one prompt, token by token: what was asked, and what has come of it so far.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/generation/draw_tokens.h"
#include "tessera/generation/sampling.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::generation {

// Why a generation ended: at a stop id, at its largest number of tokens, or by a callback, cancel() or an
// exception.
enum class FinishReason { Stop, Length, Callback };

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 256;
  // Ids that end the text; they are not part of the result. Empty = the model's eos_token_ids.
  std::vector<int64_t> stop_ids;
  // Called with every new token as it comes, except stop ids; returning false ends the generation. It may
  // call Generator::cancel(), and nothing else of a Generator or a Session.
  std::function<bool(int64_t)> on_token;
};

struct Generation {
  std::vector<int64_t> token_ids;  // the new tokens, without the prompt
  FinishReason reason = FinishReason::Length;
};

struct GenerationRequest {
  std::vector<int64_t> prompt;
  GenerateOptions options;
};

struct Continuation {
  // Throws Error(Config) for sampling options outside their ranges or an empty prompt, Error(Data) for ids
  // outside the vocabulary, and Error(Model) for a prompt longer than the model can generate after.
  Continuation(const models::CausalLM& model, GenerationRequest request);

  TokenDraw next_draw() const { return {options.sampling, result.token_ids.size()}; }
  // Takes the next token, which is row `row` of the choice for next_draw(); returns whether the text goes on.
  // Throws what TokenChoice::choose() and the callback throw.
  bool accept(const TokenChoice& choice, int64_t row);

  std::vector<int64_t> prompt;
  GenerateOptions options;
  int64_t budget = 0;  // the most new tokens; there are none if it is not positive
  Generation result;
};

}  // namespace tessera::generation
