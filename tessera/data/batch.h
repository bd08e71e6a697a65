// Rows, packed sequences and micro-batches: what flows from the dataset files to the model.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/core/ignore_label.h"

namespace tessera::data {

// One tokenised document. labels[i] is input_ids[i] or kIgnoreLabel (not shifted). Both have the same size.
//
// The labels of a masked language model mark the tokens that may be masked (data/token_masks.h).
//
// A row with targets does not train the tokens themselves: the labels mark the positions at which a
// classifier reads, and `targets` has as many numbers for each of these, one position after the other.
struct Row {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
  std::vector<int32_t> type_ids = {};  // nn::TokenBatch::type_ids; empty: all are 0
  std::vector<float> targets = {};
  // Positions at which a label run begins although the token before is labelled too, ascending.
  std::vector<int32_t> run_starts = {};
};

// Documents laid end to end, without padding.
struct MicroBatch {
  std::vector<int64_t> input_ids;  // [tokens]
  // [tokens], already shifted: labels[i] is the token that position i must predict, or kIgnoreLabel; the
  // last position of every document is kIgnoreLabel. With targets it is the number of the position's target.
  // A masked language model has there the token that stood at position i before it was masked.
  std::vector<int64_t> labels;
  std::vector<int64_t> position_ids;     // [tokens], restarts at 0 in every document
  std::vector<int64_t> document_starts;  // [documents + 1], first 0, last = tokens
  // Tokens at which the sequences begin, and their number; empty if they are one sequence. The first of them
  // is number `first_sequence` of the step, counted over all ranks.
  std::vector<int64_t> sequence_starts;
  int64_t first_sequence = 0;
  int64_t label_tokens = 0;  // labels that are not kIgnoreLabel
  // [tokens]: the index in StepSource::datasets() of the dataset that each token comes from; empty if there
  // is one dataset.
  std::vector<int64_t> datasets;
  std::vector<int64_t> type_ids = {};  // [tokens]; empty: all are 0
  std::vector<double> targets = {};    // [label_tokens, numbers]; empty: labels are tokens
};

}  // namespace tessera::data
