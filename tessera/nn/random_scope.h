// Where in the run a dropout site stands, so that its mask is a pure function of place; noise likewise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/carried_scope.h"
#include "tessera/nn/sequence.h"

namespace tessera::nn {

struct RandomPlace {
  uint64_t seed = 0;
  uint64_t step = 0;                          // optimizer step
  uint64_t micro_batch = 0;                   // number of the micro-batch in the step, counted over all ranks
  TokenPart part = {};                        // the tokens of the micro-batch that are here
  std::vector<int64_t> document_starts = {};  // of the micro-batch, for noise
  // [rows, 2] int64 on the host, where the rows here are not the tokens of one micro-batch in their order: of
  // each its micro-batch and its token there. They count in place of micro_batch and part.
  at::Tensor rows = {};
};

// While it lives, dropout sites draw their masks for its place. It must span the forward and the backward
// pass of the micro-batch: recomputed activations then draw the same masks.
using RandomScope = CarriedScope<RandomPlace>;

// The columns from `first` on of rows of `width` elements; width 0 = whole rows.
struct RowPart {
  int64_t first = 0, width = 0;
};

// A mask of 0 and 1/(1-p) with x's shape and type for the site `stream` at the current place: element i is a
// function of (seed, step, micro_batch, stream, i). Where x holds a part of each row of a wider tensor, or
// the rows of some tokens alone, in any order, i is the element's place in the whole. Error(Internal) outside
// any RandomScope.
at::Tensor dropout_mask_here(const at::Tensor& x, double p, uint64_t stream, const RowPart& part = {});

// `place` of `num_tokens` tokens that are here, for rows that are made of them: row i of tokens[i], int64.
RandomPlace place_of_rows(const RandomPlace& place, const at::Tensor& tokens, int64_t num_tokens);
// `place` of the rows [first, first + count) alone.
RandomPlace place_of_rows(const RandomPlace& place, int64_t first, int64_t count);

// What NEFTune (Jain et al., "NEFTune: noisy embeddings improve instruction finetuning", 2023) adds to the
// embeddings of the tokens here: [tokens, hidden_size], of the type of x; of a token of a document of L
// tokens uniform within alpha / sqrt(L hidden_size) of 0. An element is a function of (seed, step,
// micro_batch) and its place in the micro-batch. Error(Internal) outside any RandomScope.
at::Tensor embedding_noise_here(const at::Tensor& x, double alpha);

}  // namespace tessera::nn
