// Log-probabilities of tokens, from the logits of their places.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/scoring/token_log_probs.h"

namespace tessera::generation {

// The most elements of the logits that one pass makes.
inline constexpr int64_t kMaxLogits = int64_t{1} << 26;

// Returns the log-probability of token ids[i] in row rows[i] of logits, [any rows, vocabulary] (any floating
// type, any device), with the `num_top` likeliest tokens there. Logits become float32 (float64 if they are
// that) before the softmax; no temperature or penalty is applied. The host waits for the values.
std::vector<scoring::TokenLogProbs> token_log_probs(const at::Tensor& logits, std::span<const int64_t> rows,
                                                    std::span<const int64_t> ids, int64_t num_top);

}  // namespace tessera::generation
