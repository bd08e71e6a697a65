// Choosing the next token.
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
  // Throws Error(Config, "SAMPLING") for values outside their ranges.
  void check() const;
};

// Divides the logits of `occurred` (ids below the vocabulary's size, any number of times) as the options'
// repetition_penalty says; the tensor itself where it says nothing.
at::Tensor penalize(const at::Tensor& logits, const SamplingOptions& options,
                    const std::vector<int64_t>& occurred);

// What a greedy choice needs of logits on a device, made there: [2, rows] float64 for logits [rows,
// vocabulary], the ids of the likeliest tokens and their logits.
at::Tensor likeliest_tokens(const at::Tensor& logits);

// Chooses a token from logits [vocabulary] (any floating type, CPU). A function of the logits, the options
// and `index`, the number of the token in its sequence. The options apply in the order temperature, top_k,
// top_p, min_p, as in Transformers. Throws Error(Numerics) if no logit is finite or one
// is NaN.
int64_t sample(const at::Tensor& logits, const SamplingOptions& options, uint64_t index);

// The next tokens of several sequences, for which the host waits once: for the logits, or, where the first of
// the likeliest is chosen for all of them, for likeliest_tokens().
class TokenChoice {
 public:
  // logits: [at least as many rows as sequences, vocabulary], on any device; likeliest: likeliest_tokens() of
  // it, or undefined. needs_logits: of any sequence, as below.
  TokenChoice(const at::Tensor& logits, const at::Tensor& likeliest, bool needs_logits);

  // Whether more than the likeliest token is asked for.
  static bool needs_logits(const SamplingOptions& options);
  // sample(penalize()) of a row.
  int64_t choose(int64_t row, const SamplingOptions& options, const std::vector<int64_t>& occurred,
                 uint64_t index) const;

 private:
  bool has_logits_;
  at::Tensor values_;  // logits, or the likeliest, on the host
};

}  // namespace tessera::models
