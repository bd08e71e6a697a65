// Packs rows into sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::data {

// A list of sequences, each a list of items (indices into what was packed).
struct PackPlan {
  std::vector<int64_t> offsets = {0};  // [sequences + 1]
  std::vector<int64_t> items;          // [items], grouped by sequence

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  std::span<const int64_t> sequence(int64_t i) const {
    return {items.data() + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])};
  }
};

// Packs by first-fit decreasing into sequences of `capacity` tokens, in consecutive groups of `group_size`
// items, in O(n log n). Every item lands in exactly one sequence; the items of a sequence are in ascending
// order. Requires 0 < lengths[i] <= capacity.
PackPlan pack_first_fit_decreasing(std::span<const int64_t> lengths, int64_t capacity,
                                   int64_t group_size = 100'000);

// Packs by next-fit: each item goes into the sequence of the item before it if it fits there, else into a new
// one, so that items stay in order. Requires 0 < lengths[i] <= capacity.
PackPlan pack_in_order(std::span<const int64_t> lengths, int64_t capacity);

// Makes a plan in which each sequence is one item, in order.
PackPlan pack_one_each(int64_t num_items);

// Returns the number of tokens divided by sequences * capacity; 0 for an empty plan.
double packing_efficiency(const PackPlan& plan, std::span<const int64_t> lengths, int64_t capacity);

}  // namespace tessera::data
