#include "tessera/generation/scored_sequences.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "tessera/core/error.h"
#include "tessera/nn/kv_cache.h"

namespace tessera::generation {
namespace {

using scoring::TokenRequest;

constexpr int64_t kPage = nn::KvCache::kPageTokens;

std::span<const int64_t> input_of(const TokenRequest& request) {
  return std::span(request.ids).first(request.ids.size() - 1);
}

// Returns the sequences, ordered by their lengths, the longest one first, or not, and then by their tokens.
std::vector<ScoredSequence> group(std::span<const TokenRequest> requests, bool by_length) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const auto x = input_of(requests[a]), y = input_of(requests[b]);
    if (by_length && x.size() != y.size()) return x.size() > y.size();
    if (const auto less = std::lexicographical_compare_three_way(x.begin(), x.end(), y.begin(), y.end());
        less != 0)
      return less < 0;
    return requests[a].num_scored > requests[b].num_scored;
  });
  std::vector<ScoredSequence> sequences;
  for (const size_t i : order) {
    const TokenRequest& request = requests[i];
    TESSERA_ASSERT(request.num_scored >= 1 && request.num_scored < std::ssize(request.ids),
                   "a scored request");
    if (sequences.empty() ||
        !std::ranges::equal(input_of(requests[sequences.back().requests[0]]), input_of(request))) {
      sequences.push_back({{}, std::ssize(request.ids) - 1, request.num_scored});
    }
    sequences.back().requests.push_back(i);
  }
  return sequences;
}

}  // namespace

std::vector<ScoredSequence> group_requests(std::span<const TokenRequest> requests) {
  // Memory is highest at the beginning.
  return group(requests, /*by_length=*/true);
}

std::vector<ScoredSequence> group_by_beginning(std::span<const TokenRequest> requests) {
  std::vector<ScoredSequence> sequences = group(requests, /*by_length=*/false);
  const auto common_pages = [&](size_t i) -> size_t {
    if (i == 0 || i == sequences.size()) return 0;
    const auto x = input_of(requests[sequences[i - 1].requests[0]]),
               y = input_of(requests[sequences[i].requests[0]]);
    return static_cast<size_t>((std::ranges::mismatch(x, y).in1 - x.begin()) / kPage);
  };
  // A page that several sequences have is named by the first of them and by its number. `owners` are these
  // first ones, for the pages that sequence i has in common with a neighbour.
  std::vector<size_t> owners;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t before = common_pages(i), after = common_pages(i + 1);
    owners.resize(before);
    owners.resize(std::max(before, after), i);
    const auto unscored = static_cast<size_t>(sequences[i].first_scored() / kPage);
    for (size_t page = 0; page < std::min(owners.size(), unscored); ++page)
      sequences[i].keys.push_back(std::to_string(owners[page]) + ":" + std::to_string(page));
  }
  return sequences;
}

}  // namespace tessera::generation
