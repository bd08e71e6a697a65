#include "tessera/planner/simulation/representatives.h"

#include <algorithm>
#include <set>

namespace tessera::planner {
namespace {

// A digit of a rank's number: (rank / stride) % size. Changing places among its values must leave the groups
// as they are, unless all values are kept.
struct Digit {
  int64_t stride = 1, size = 1;
  bool keeps_all = false;
};

std::vector<Digit> digits_of(const Choice& choice, const AxisGroups& groups) {
  std::set<int64_t> cuts = {1, choice.ranks()};
  for (const Group& group : {groups.tensor, groups.context, groups.experts, groups.shards, groups.near_shards,
                             groups.copies, groups.pipeline}) {
    if (group.size == 1) continue;
    cuts.insert(group.stride);
    cuts.insert(group.stride * group.size);
  }
  // Cuts that do not divide each other lie within one digit.
  std::vector<int64_t> nested;
  for (const int64_t cut : cuts) {
    const bool divides_all = std::ranges::all_of(
        cuts, [cut](int64_t other) { return other >= cut ? other % cut == 0 : cut % other == 0; });
    if (divides_all) nested.push_back(cut);
  }
  std::vector<Digit> digits;
  for (size_t i = 0; i + 1 < nested.size(); ++i) {
    const bool is_simple = std::next(cuts.find(nested[i])) == cuts.find(nested[i + 1]);
    const bool is_stage = choice.pp > 1 && nested[i] == groups.pipeline.stride;
    digits.push_back({nested[i], nested[i + 1] / nested[i], !is_simple || is_stage});
  }
  return digits;
}

}  // namespace

std::vector<int64_t> Disturbances::ranks(int64_t devices_per_node, int64_t num_ranks) const {
  std::set<int64_t> found;
  for (const auto& [rank, factor] : slow_ranks) found.insert(rank);
  for (const auto& [node, factor] : slow_networks) {
    const int64_t first = node * devices_per_node;
    for (int64_t rank = first; rank < std::min(first + devices_per_node, num_ranks); ++rank)
      found.insert(rank);
  }
  return {found.begin(), found.end()};
}

std::vector<int64_t> representatives(const Choice& choice, const AxisGroups& groups,
                                     const std::vector<int64_t>& special) {
  std::vector<int64_t> found = {0};
  for (const Digit& digit : digits_of(choice, groups)) {
    std::set<int64_t> values;
    if (digit.keeps_all) {
      for (int64_t value = 0; value < digit.size; ++value) values.insert(value);
    } else {
      for (const int64_t rank : special) values.insert(rank / digit.stride % digit.size);
      // The first value that no special rank has stands for all others.
      int64_t other = 0;
      while (values.contains(other)) ++other;
      if (other < digit.size) values.insert(other);
    }
    std::vector<int64_t> longer;
    for (const int64_t value : values) {
      for (const int64_t rank : found) longer.push_back(rank + value * digit.stride);
    }
    found = std::move(longer);
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace tessera::planner
