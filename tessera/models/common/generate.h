// Text generation token by token, with a cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/models/common/causal_lm.h"

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

enum class FinishReason { Stop, Length, Callback };

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 256;
  // Ids that end the text; they are not part of the result. Empty = the model's eos_token_ids.
  std::vector<int64_t> stop_ids;
  // Told every new token as it comes (stop ids excepted); false ends the generation.
  std::function<bool(int64_t)> on_token;
};

struct Generation {
  std::vector<int64_t> token_ids;  // the new ones alone
  FinishReason reason = FinishReason::Length;
};

// Continues `prompt` (at least one id: Error(Config, "PROMPT") otherwise). Stops before the model's longest
// document would be exceeded. The model should be in eval mode.
Generation generate(CausalLM& model, const std::vector<int64_t>& prompt, const GenerateOptions& options);

}  // namespace tessera::models
