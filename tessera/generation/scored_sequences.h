// The inputs of scored requests: which requests have the same one, and where several begin alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/nn/page_index.h"
#include "tessera/scoring/encode_requests.h"

namespace tessera::generation {

// Requests with the same input, which is all of their tokens but the last.
struct ScoredSequence {
  std::vector<size_t> requests;  // the first one has the most scored tokens
  int64_t length = 0;            // of the input
  int64_t num_scored = 0;        // the most of any
  // Names of the pages at its beginning that another sequence has too, and in which no token is scored.
  std::vector<nn::PageKey> keys = {};

  // Returns the first input position whose logits are wanted.
  int64_t first_scored() const { return length - num_scored; }
};

// Returns the sequences of the requests, the longest one first, without keys.
std::vector<ScoredSequence> group_requests(std::span<const scoring::TokenRequest> requests);
// Returns them in the order of their tokens, so that those follow each other that begin alike, with their
// keys.
std::vector<ScoredSequence> group_by_beginning(std::span<const scoring::TokenRequest> requests);

}  // namespace tessera::generation
