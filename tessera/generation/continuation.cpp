#include "tessera/generation/continuation.h"

#include <algorithm>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::generation {

Continuation::Continuation(const models::CausalLM& model, GenerationRequest request)
    : prompt(std::move(request.prompt)), options(std::move(request.options)) {
  options.sampling.check();
  if (prompt.empty()) throw Error(ErrorKind::Config, "PROMPT", "the prompt has no tokens");
  const models::ModelConfig& config = model.config();
  if (options.stop_ids.empty()) options.stop_ids = config.eos_token_ids;
  biases_ = AnswerBiases(options.biases, options.sampling, options.stop_ids, config.vocab_size);
  budget = options.max_new_tokens;
  model.check_prompt(prompt);
  if (config.generation_bound.has_value()) {
    // The last token that is chosen is never fed to the model, so it needs no position.
    budget = std::min(budget,
                      config.generation_bound->tokens - model.num_virtual_tokens() - std::ssize(prompt) + 1);
  }
  if (options.constraint != nullptr) {
    constraint_.emplace(options.constraint);
    allowed_ = constraint_->allowed(options.stop_ids);
  }
}

int64_t Continuation::choose(const TokenChoice& choice, int64_t row) const {
  return choice.choose(row, options.sampling, next_draw().index);
}

bool Continuation::accept(int64_t token) {
  std::vector<int64_t>& ids = result.token_ids;
  if (std::find(options.stop_ids.begin(), options.stop_ids.end(), token) != options.stop_ids.end()) {
    result.reason = FinishReason::Stop;
    return false;
  }
  ids.push_back(token);
  if (options.on_token && !options.on_token(token)) {
    result.reason = FinishReason::Callback;
    return false;
  }
  if (constraint_) {
    constraint_->take(token);
    if (constraint_->must_end()) {
      result.reason = FinishReason::Complete;
      return false;
    }
  }
  if (std::ssize(ids) >= budget) return false;
  if (constraint_) allowed_ = constraint_->allowed(options.stop_ids);
  biases_.take(ids);
  return true;
}

scoring::TokenLogProbs Continuation::with_wanted_top(scoring::TokenLogProbs log_probs) const {
  const auto wanted = static_cast<size_t>(options.num_log_probs);
  if (log_probs.top.size() > wanted) log_probs.top.resize(wanted);
  return log_probs;
}

}  // namespace tessera::generation
