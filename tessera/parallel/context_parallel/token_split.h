// Which tokens of a line each rank of context parallelism holds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tessera/nn/sequence.h"
#include "tessera/ops/attention_formula.h"

namespace tessera::parallel {

// Every document is cut into 2 n parts of equal length but for rounding; rank r of n holds the parts r and
// 2 n - 1 - r ("zig-zag"): an early and a late one, so that all ranks have the same work under a causal mask,
// however the documents are packed. A rank's tokens are the first of its parts of all documents, then the
// second ones: its two halves. A document shorter than 2 n has empty parts; a rank may hold no token at all.
class TokenSplit {
 public:
  // document_starts: [documents + 1], as in nn::TokenBatch.
  TokenSplit(std::vector<int64_t> document_starts, int64_t num_ranks);

  static constexpr int64_t kHalves = 2;

  // Over `factor` times fewer ranks: each has the tokens of so many neighbours.
  TokenSplit coarser(int64_t factor) const { return TokenSplit(starts_, num_ranks_ / factor); }
  int64_t num_ranks() const { return num_ranks_; }
  // Tokens of a rank, and of one of its halves.
  int64_t count(int64_t rank) const { return count(rank, 0) + count(rank, 1); }
  int64_t count(int64_t rank, int64_t half) const;
  // The rank's tokens as runs of the line, in the order in which it holds them.
  std::vector<nn::TokenRun> runs(int64_t rank) const;
  // Attention of a half's queries over a half's keys, counted from the first of each.
  std::vector<ops::AttentionSpan> spans(int64_t query_rank, int64_t query_half, int64_t key_rank,
                                        int64_t key_half) const;

 private:
  // Of the document's part that the rank's half is: from its first token, in the document.
  nn::TokenRun part(size_t document, int64_t rank, int64_t half) const;

  std::vector<int64_t> starts_;
  int64_t num_ranks_;
};

}  // namespace tessera::parallel
