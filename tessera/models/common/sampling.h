// Choosing the next token.
//
// Tokens fall by their logits, equal ones rise by their ids. A token's weight is exp((logit - highest) /
// temperature), rounded to a whole number of 2^-40, and the sums of these numbers are exact in any order, so
// that who adds in another order chooses the same token. top_k keeps the first k tokens; top_p of those the
// fewest first ones that reach ceil(top_p * sum of all); min_p of those the ones of at least min_p. Drawn is,
// of what is kept by rising id, the first token with which the sum exceeds floor(random number * sum of all).
// draw_tokens.h does the same on a device.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::models {

struct SamplingOptions {
  double temperature = 0.0;  // 0 = greedy: the likeliest token, the lowest id among equals
  double top_p = 1.0;        // smallest set of tokens whose probabilities reach it, in (0, 1]
  int64_t top_k = 0;         // the likeliest k tokens; 0 = all
  double min_p = 0.0;        // tokens at least this fraction as likely as the likeliest, in [0, 1]
  // The logit of every token that has occurred, in prompt or answer, is divided by it where it is positive
  // and multiplied where it is negative; above 0, 1 = none. Before all others, greedy choice included.
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
  uint64_t sequence = 0;  // answers of one seed that differ in it draw other numbers

  // Whether no random number is drawn.
  bool is_greedy() const { return temperature < 1e-6; }
  // Whether the likeliest token comes next, whatever came before.
  bool takes_likeliest() const { return is_greedy() && repetition_penalty == 1.0; }
  // Whether a draw asks in which order tokens fall.
  bool cuts() const { return !is_greedy() && (top_k > 0 || top_p < 1.0); }
  // The random number of the sequence's token `index`, in [0, 1).
  double random_number(uint64_t index) const;
  // Throws Error(Config, "SAMPLING") for values outside their ranges.
  void check() const;
};

// The weight of the likeliest token, and of how many tokens weights can be added up.
inline constexpr double kWeightOfOne = 0x1p40;
inline constexpr int64_t kMostWeights = int64_t{1} << 21;

// Divides the logits of `occurred` (ids below the vocabulary's size, any number of times) as the options'
// repetition_penalty says; the tensor itself where it says nothing.
at::Tensor penalize(const at::Tensor& logits, const SamplingOptions& options,
                    const std::vector<int64_t>& occurred);

// Chooses a token from logits [vocabulary] (any floating type, CPU). A function of the logits, the options
// and `index`, the number of the token in its sequence. The options apply in the order temperature, top_k,
// top_p, min_p, as in Transformers. Throws Error(Numerics) if no logit is finite or one is NaN or infinite.
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, uint64_t index);

// The next tokens of several sequences, for which the host waits once: for those that were chosen on a
// device, or else for the logits.
class TokenChoice {
 public:
  // logits: [at least as many rows as sequences, vocabulary], on any device; chosen: what draw_tokens() or
  // likeliest_tokens() has made of them, or undefined.
  TokenChoice(const at::Tensor& logits, const at::Tensor& chosen);

  // The token of a row: as it was chosen, by the same options, or sample(penalize()).
  int64_t choose(int64_t row, const SamplingOptions& options, const std::vector<int64_t>& occurred,
                 uint64_t index) const;

 private:
  bool is_chosen_;
  at::Tensor values_;  // what was chosen, or logits, on the host
};

}  // namespace tessera::models
