#include "tessera/parallel/context_parallel/token_split.h"

#include <utility>

#include "tessera/core/error.h"

namespace tessera::parallel {

TokenSplit::TokenSplit(std::vector<int64_t> document_starts, int64_t num_ranks)
    : starts_(std::move(document_starts)), num_ranks_(num_ranks) {
  TESSERA_ASSERT(!starts_.empty() && num_ranks >= 1, "a line of tokens and ranks that share it");
}

nn::TokenRun TokenSplit::part(size_t document, int64_t rank, int64_t half) const {
  const int64_t length = starts_[document + 1] - starts_[document], parts = kHalves * num_ranks_;
  const int64_t number = half == 0 ? rank : parts - 1 - rank;
  const int64_t begin = length * number / parts, end = length * (number + 1) / parts;
  return {begin, end - begin};
}

int64_t TokenSplit::count(int64_t rank, int64_t half) const {
  int64_t count = 0;
  for (size_t d = 0; d + 1 < starts_.size(); ++d) count += part(d, rank, half).count;
  return count;
}

std::vector<nn::TokenRun> TokenSplit::runs(int64_t rank) const {
  std::vector<nn::TokenRun> runs;
  for (int64_t half = 0; half < kHalves; ++half) {
    for (size_t d = 0; d + 1 < starts_.size(); ++d) {
      const nn::TokenRun own = part(d, rank, half);
      if (own.count > 0) runs.push_back({starts_[d] + own.first, own.count});
    }
  }
  return runs;
}

std::vector<ops::AttentionSpan> TokenSplit::spans(int64_t query_rank, int64_t query_half, int64_t key_rank,
                                                  int64_t key_half) const {
  std::vector<ops::AttentionSpan> spans;
  int64_t query = 0, key = 0;
  for (size_t d = 0; d + 1 < starts_.size(); ++d) {
    const nn::TokenRun queries = part(d, query_rank, query_half), keys = part(d, key_rank, key_half);
    if (queries.count > 0 && keys.count > 0) {
      spans.push_back({query, queries.count, key, keys.count, queries.first - keys.first});
    }
    query += queries.count;
    key += keys.count;
  }
  return spans;
}

}  // namespace tessera::parallel
