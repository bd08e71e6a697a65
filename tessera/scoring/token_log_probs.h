// The log-probability of one token, beside those of the tokens that a model finds likeliest in its place.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::scoring {

struct TokenLogProb {
  int64_t id = 0;
  double log_prob = 0.0;  // log-softmax of the raw logits, in nats; -infinity where a logit is
};

struct TokenLogProbs {
  double log_prob = 0.0;          // of the token itself
  std::vector<TokenLogProb> top;  // the likeliest tokens, by falling log-probability, then by rising id
};

}  // namespace tessera::scoring
