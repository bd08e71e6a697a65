// Choosing the next tokens of a batch where its logits lie, by LibTorch's operations: the definition is that
// of sampling.h.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/models/common/sampling.h"

namespace tessera::models {

// How the next token of a sequence is chosen, and its number in the sequence.
struct TokenDraw {
  SamplingOptions options;
  uint64_t index = 0;
};

// What draw_tokens() is told of a row, in this order: the temperature (0 = greedy), top_k, top_p and min_p
// (those that cut nothing where they are not asked for), the penalty of repetition, and the random number.
inline constexpr int64_t kDrawValues = 6;
std::array<double, kDrawValues> draw_values(const TokenDraw& draw);

// What any row of a batch asks for. The others are not changed by it.
struct DrawWork {
  bool draws = false, cuts = false, penalizes = false;

  void add(const SamplingOptions& options);
  bool is_any() const { return draws || penalizes; }
};

// What is chosen of logits [rows, vocabulary] (any floating type, any device): [2, rows] float64, the ids of
// the tokens and the logits of the likeliest ones, of which a row whose logits sample() refuses has one that
// is not finite; its id is then any of the vocabulary. The host waits for nothing, and no shape depends on
// values.
//
// The likeliest of every row, the first of equals.
at::Tensor likeliest_tokens(const at::Tensor& logits);
// Tokens of all rows by their draw_values(), [kDrawValues, rows] float64 beside the logits. occurred: [rows,
// vocabulary] bool, where anything is penalized: which tokens have occurred. The token of a row is
// sample()'s, whatever the other rows ask for. Only a last bit in which the exponential functions of host and
// device differ may choose another one: it reaches one weight in some thousand, of which it moves the sum by
// one of 2^40.
at::Tensor draw_tokens(const at::Tensor& logits, const at::Tensor& values, const at::Tensor& occurred,
                       const DrawWork& work);

}  // namespace tessera::models
