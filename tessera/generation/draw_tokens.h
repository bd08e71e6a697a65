// Chooses the next tokens of a batch on the device that holds its logits, by LibTorch's operations. Which
// token is chosen is defined in sampling.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "tessera/generation/sampling.h"

namespace tessera::generation {

// How the next token of a sequence is chosen.
struct TokenDraw {
  SamplingOptions options;
  uint64_t index = 0;  // number of the token in the sequence
  // One bit for each token of the vocabulary, 64 in a number: whether it may be chosen. Empty = all may.
  std::span<const uint64_t> allowed = {};
};

// Returns logits, [rows, vocabulary], in which tokens that a row may not choose are -infinity. The first rows
// are those of `draws`. The host waits for nothing.
at::Tensor keep_allowed(const at::Tensor& logits, std::span<const TokenDraw> draws);

// Returns the numbers by which draw_tokens() chooses the token of one row, in this order: the temperature
// (0 = greedy), top_k, top_p and min_p (each with a value that cuts nothing if it is not asked for), the
// repetition penalty, and the random number.
inline constexpr int64_t kDrawValues = 6;
std::array<double, kDrawValues> draw_values(const TokenDraw& draw);

// Returns logits, [rows, vocabulary], with each row's repetition penalty applied to the tokens that have
// occurred in it. `values` and `occurred` are those of draw_tokens(), on the device of the logits.
at::Tensor penalize(const at::Tensor& logits, const at::Tensor& values, const at::Tensor& occurred);

// The kinds of work that at least one row of a batch asks for. A kind is done for all rows; the rows that did
// not ask for it are not changed by it.
struct DrawWork {
  bool draws = false, cuts = false, penalizes = false, bars = false;

  void add(const TokenDraw& draw);
  bool is_any() const { return draws || penalizes || bars; }
};

// Both functions below take logits [rows, vocabulary] (any floating type, any device) and return [2, rows]
// float64 on the same device: the ids of the chosen tokens, and the logits of the likeliest ones. If
// sample() would refuse a row's logits, the logit of that row is not finite and its id is any of the
// vocabulary. The host waits for nothing, and no shape depends on values.

// Chooses the likeliest token of every row, the one of the lowest id among equals.
at::Tensor likeliest_tokens(const at::Tensor& logits);
// Chooses the tokens of all rows by their draw_values(): `values` is [kDrawValues, rows] float64 on the
// device of the logits. `occurred` is [rows, vocabulary] bool and says which tokens have occurred; it is
// undefined unless work.penalizes. A row gets the token that sample() chooses after penalize(), whatever the
// other rows ask for. Only where the exponential functions of host and device differ in the last bit may
// another token be chosen: that happens to about one weight in a thousand, and moves the sum of the weights
// by 1, of 2^40 for the likeliest token.
at::Tensor draw_tokens(const at::Tensor& logits, const at::Tensor& values, const at::Tensor& occurred,
                       const DrawWork& work);

}  // namespace tessera::generation
