// The place of a dropout site in the run. Dropout masks, and noise, are pure functions of that place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/device/carried_scope.h"
#include "tessera/nn/sequence.h"

namespace tessera::nn {

struct RandomPlace {
  uint64_t seed = 0;
  uint64_t step = 0;      // optimizer step
  uint64_t sequence = 0;  // number of the micro-batch's first sequence in the step, counted over all ranks
  TokenPart part = {};    // the tokens of the micro-batch that this rank holds
  std::vector<int64_t> document_starts = {};  // those of the micro-batch; needed for noise
  // Tokens at which the micro-batch's sequences begin, and their number; empty if it is one sequence.
  std::vector<int64_t> sequence_starts = {};
  // [rows, 2] int64 on the host: for each row its sequence and its token there. Set if the rows that this
  // rank has are not the tokens of one micro-batch in their order; only seed and step count beside it.
  at::Tensor rows = {};
};

// While it lives, dropout sites draw their masks for its place. It must span the forward and the backward
// pass of the micro-batch, so that recomputed activations draw the same masks.
using RandomScope = CarriedScope<RandomPlace>;

// A part of each row of a wider tensor: the columns from `first` on of rows of `width` elements. width 0 =
// whole rows.
struct RowPart {
  int64_t first = 0, width = 0;
};

// Returns a mask of 0 and 1/(1-p) with x's shape and type for the site `stream` at the current place. An
// element is a function of (seed, step, sequence, stream, i), where i is its index among the elements of its
// sequence's rows. If x holds a part of each row of a wider tensor, or the rows of some tokens alone, in any
// order, i is the element's index in the whole tensor. Throws Error(Internal) outside any RandomScope.
at::Tensor dropout_mask_here(const at::Tensor& x, double p, uint64_t stream, const RowPart& part = {});

// Returns 64 random bits for each row and head of x, [tokens, heads, ...]: [tokens, heads] int64 on x's
// device. Head 0 is head `first_head` of `num_heads`. An element is a function of (seed, step, sequence,
// stream), its token's place in the sequence and its head. Throws Error(Internal) outside any RandomScope.
at::Tensor draws_here(const at::Tensor& x, int64_t first_head, int64_t num_heads, uint64_t stream);

// Converts the place of this rank's `num_tokens` tokens to that of rows made of them: row i belongs to token
// tokens[i], int64.
RandomPlace place_of_rows(const RandomPlace& place, const at::Tensor& tokens, int64_t num_tokens);
// Returns the place of the rows [first, first + count) alone; `place` must have `rows`.
RandomPlace place_of_rows(const RandomPlace& place, int64_t first, int64_t count);

// Returns what NEFTune (Jain et al., "NEFTune: noisy embeddings improve instruction finetuning", 2023) adds
// to the embeddings of this rank's tokens: [tokens, hidden_size], of x's type. The noise of a token in a
// document of L tokens is uniform within alpha / sqrt(L hidden_size) of 0. An element is a function of (seed,
// step, sequence) and its index in the sequence. Throws Error(Internal) outside any RandomScope.
at::Tensor embedding_noise_here(const at::Tensor& x, double alpha);

}  // namespace tessera::nn
