// Choosing the next token.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::models {

struct SamplingOptions {
  double temperature = 0.0;  // 0 = greedy: the likeliest token, the lowest id among equals
  double top_p = 1.0;        // smallest set of tokens whose probabilities reach it, in (0, 1]
  int64_t top_k = 0;         // the likeliest k tokens; 0 = all
  uint64_t seed = 0;

  // Throws Error(Config, "SAMPLING") for values outside their ranges.
  void check() const;
};

// Chooses a token from logits [vocabulary] (any floating type, CPU). A function of the logits, the options
// and `index`, the number of the token in its sequence. Throws Error(Numerics) if no logit is finite or one
// is NaN.
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, uint64_t index);

}  // namespace tessera::models
