// Choosing the next token.
//
// Tokens are ordered by falling logit, equal ones by rising id. A token's weight is exp((logit - highest) /
// temperature), rounded to a whole multiple of 2^-40. Sums of such numbers are exact in any order of
// addition, so host and device choose the same token although they add in different orders. Three cuts
// follow, each of what the one before has kept: top_k keeps the first k tokens; top_p keeps the fewest first
// tokens whose weights reach ceil(top_p * their sum); min_p keeps the tokens whose weight is at least min_p.
// The draw goes through the kept tokens by rising id and takes the first one with which the sum of weights
// exceeds floor(random number * sum of all kept weights). draw_tokens.h does the same on a device.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::generation {

struct SamplingOptions {
  double temperature = 0.0;  // 0 = greedy: the likeliest token, the lowest id among equals
  double top_p = 1.0;        // keeps the smallest set of tokens whose probabilities reach it, in (0, 1]
  int64_t top_k = 0;         // keeps the likeliest k tokens; 0 = all
  double min_p = 0.0;        // keeps tokens at least this fraction as likely as the likeliest, in [0, 1]
  // The logit of every token that has occurred, in prompt or answer, is divided by the penalty if it is
  // positive and multiplied by it if it is negative. Above 0; 1 = no penalty. It is applied before all other
  // options and before a greedy choice.
  double repetition_penalty = 1.0;
  // Taken off the logit of every token that has occurred in the answer, once or as often as it has, as OpenAI
  // defines it; -2 to 2, 0 = no penalty. They come right after repetition_penalty (AnswerBiases).
  double presence_penalty = 0.0, frequency_penalty = 0.0;
  uint64_t seed = 0;
  uint64_t sequence = 0;  // number of an answer: answers of one seed draw different random numbers

  // Tells whether no random number is drawn.
  bool is_greedy() const { return temperature < 1e-6; }
  // Tells whether a draw needs the order of tokens by falling logit.
  bool cuts() const { return !is_greedy() && (top_k > 0 || top_p < 1.0); }
  // Returns the random number of the sequence's token `index`, in [0, 1).
  double random_number(uint64_t index) const;
  // Throws Error(Config, "SAMPLING") for values outside their ranges.
  void check() const;
};

// The weight of the likeliest token, as an integer (a weight of 1), and the largest vocabulary whose weights
// can be added up: 2^21 weights of at most 2^40 each do not overflow int64.
inline constexpr double kWeightOfOne = 0x1p40;
inline constexpr int64_t kMostWeights = int64_t{1} << 21;

// Chooses a token from logits [vocabulary] (any floating type, any device, copied to the host). The choice is
// a function of the logits, the options and `index`, the number of the token in its sequence. The options
// apply in the order temperature, top_k, top_p, min_p, as in Transformers; penalties are left to
// change_logits() (draw_tokens.h). Throws Error(Numerics) if a logit is NaN or +infinity, or if all are
// -infinity.
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, uint64_t index);

// The next tokens of several sequences. The host waits once for all of them: for the tokens if a device has
// chosen them, and otherwise for the logits.
class TokenChoice {
 public:
  // Waits for the values. `logits` is [at least as many rows as sequences, vocabulary], on any device;
  // `chosen` is the result of draw_tokens() or likeliest_tokens() for them, or undefined.
  TokenChoice(const at::Tensor& logits, const at::Tensor& chosen);

  // Returns the token of a row. If a device has chosen it, `options` and `index` must be those by which it
  // did; otherwise the token is sample() of the row. Throws Error(Numerics) as sample() does.
  int64_t choose(int64_t row, const SamplingOptions& options, uint64_t index) const;

 private:
  bool is_chosen_;
  at::Tensor values_;  // on the host: `chosen` if is_chosen_, else the logits
};

}  // namespace tessera::generation
