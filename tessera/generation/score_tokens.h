// Log-probabilities of tokens that are given: how likely a model finds a continuation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/scoring/encode_requests.h"

namespace tessera::generation {

struct TokenScore {
  double log_prob = 0.0;  // sum over the scored tokens of the log-softmax of the raw logits, in nats
  bool is_greedy = true;  // each scored token is the most likely one
};

struct ScoreTokensOptions {
  int64_t max_tokens = 1024;  // tokens that go through the model at once; a longer request goes in parts
  // Called after each pass with the number of requests that are done, and that of all.
  std::function<void(int64_t done, int64_t all)> on_progress = nullptr;
  // Computes once what requests have in common at their beginnings, in whole pages of the cache; not if
  // why_no_shared_pages() has a reason. The stages of a pipeline may have other reasons than their
  // neighbours, and must not share.
  bool shares_beginnings = true;
};

// Scores requests with the model's logits as they are, without temperature or penalties. Logits become
// float32 (float64 in a float64 model) before the softmax. Requests of which all tokens but the last are
// equal are computed once; the others are packed end to end without padding. Requests must not be longer than
// the model takes, plus one token. Throws Error(Numerics, "SCORE") if logits are not
// finite. Collective if the model's next_logits() is: all ranks then score the same requests.
std::vector<TokenScore> score_tokens(models::CausalLM& model, std::span<const scoring::TokenRequest> requests,
                                     const ScoreTokensOptions& options = {});

}  // namespace tessera::generation
