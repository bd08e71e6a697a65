// Changes the logits of a batch as its requests ask, and chooses the next tokens on the device that holds
// them, by LibTorch's operations. Which token is chosen is defined in sampling.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "tessera/generation/sampling.h"

namespace tessera::generation {

// A number that is added to the logit of one token.
struct TokenBias {
  int64_t id = 0;
  double delta = 0.0;
};

// How the next token of a sequence is chosen.
struct TokenDraw {
  SamplingOptions options;
  uint64_t index = 0;  // number of the token in the sequence
  // One bit for each token of the vocabulary, 64 in a number: whether it may be chosen. Empty = all may.
  std::span<const uint64_t> allowed = {};
  // Added before the repetition penalty, and after it. Each list names a token at most once.
  std::span<const TokenBias> before_penalty = {}, after_penalty = {};
};

// Returns the numbers by which draw_tokens() chooses the token of one row, in this order: the temperature
// (0 = greedy), top_k, top_p and min_p (each with a value that cuts nothing if it is not asked for), the
// repetition penalty, and the random number.
inline constexpr int64_t kDrawValues = 6;
std::array<double, kDrawValues> draw_values(const TokenDraw& draw);

// The kinds of work that at least one row of a batch asks for. A kind is done for all rows; the rows that did
// not ask for it are not changed by it.
struct DrawWork {
  bool draws = false, cuts = false, penalizes = false, bars = false, adds = false;

  void add(const TokenDraw& draw);
  bool changes_logits() const { return penalizes || bars || adds; }
  bool is_any() const { return draws || changes_logits(); }
};

// Returns logits, [rows, vocabulary], as `draws`, those of the first rows, ask for it, in vLLM's order:
// tokens that a row may not choose become -infinity, before_penalty is added, the repetition penalty is
// applied to the tokens that have occurred, and after_penalty is added. `values` are the draw_values() of all
// rows, [kDrawValues, rows] float64, and `occurred` says which tokens have occurred, [rows, vocabulary] bool;
// both are on the device of the logits, and `occurred` is undefined unless work.penalizes. The host waits for
// nothing.
at::Tensor change_logits(const at::Tensor& logits, std::span<const TokenDraw> draws, const at::Tensor& values,
                         const at::Tensor& occurred, const DrawWork& work);

// Both functions below take logits [rows, vocabulary] (any floating type, any device) and return [2, rows]
// float64 on the same device: the ids of the chosen tokens, and the logits of the likeliest ones. If
// sample() would refuse a row's logits, the logit of that row is not finite and its id is any of the
// vocabulary. The host waits for nothing, and no shape depends on values.

// Chooses the likeliest token of every row, the one of the lowest id among equals.
at::Tensor likeliest_tokens(const at::Tensor& logits);
// Chooses the tokens of all rows by their draw_values(): `values` is that of change_logits(), whose result
// the logits are. A row gets the token that sample() chooses, whatever the other rows ask for. Only where the
// exponential functions of host and device differ in the last bit may another token be chosen: that happens
// to about one weight in a thousand, and moves the sum of the weights by 1, of 2^40 for the likeliest token.
at::Tensor draw_tokens(const at::Tensor& logits, const at::Tensor& values, const DrawWork& work);

}  // namespace tessera::generation
