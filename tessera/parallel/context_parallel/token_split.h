// Decides which tokens of a line each rank of context parallelism holds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tessera/nn/sequence.h"
#include "tessera/ops/attention_formula.h"

namespace tessera::parallel {

// The split of a line of documents over n ranks. Every document is cut into 2 n parts of equal length, up to
// rounding; rank r holds the parts r and 2 n - 1 - r ("zig-zag"). These are an early and a late one, so all
// ranks have the same work under a causal mask, however the documents are packed. A rank's tokens are its
// first parts of all documents, then its second parts of all documents: its two halves. A document shorter
// than 2 n has empty parts; a rank may hold no token at all.
class TokenSplit {
 public:
  // document_starts: [documents + 1], as in nn::TokenBatch.
  TokenSplit(std::vector<int64_t> document_starts, int64_t num_ranks);

  static constexpr int64_t kHalves = 2;

  // Returns the split over `factor` times fewer ranks, of which each has the tokens of `factor` neighbours.
  TokenSplit coarser(int64_t factor) const { return TokenSplit(starts_, num_ranks_ / factor); }
  int64_t num_ranks() const { return num_ranks_; }
  // Returns the number of tokens of a rank, or of one of its halves.
  int64_t count(int64_t rank) const { return count(rank, 0) + count(rank, 1); }
  int64_t count(int64_t rank, int64_t half) const;
  // Returns the rank's tokens as runs of the line, in the order in which the rank holds them.
  std::vector<nn::TokenRun> runs(int64_t rank) const;
  // Returns the spans for attention from the queries of one half to the keys of another; rows are counted
  // from the first of each half.
  std::vector<ops::AttentionSpan> spans(int64_t query_rank, int64_t query_half, int64_t key_rank,
                                        int64_t key_half) const;

 private:
  // Returns the part of the document that lies in the rank's half; `first` is counted from the first token of
  // the document.
  nn::TokenRun part(size_t document, int64_t rank, int64_t half) const;

  std::vector<int64_t> starts_;
  int64_t num_ranks_;
};

}  // namespace tessera::parallel
