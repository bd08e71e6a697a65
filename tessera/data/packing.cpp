#include "tessera/data/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "tessera/core/error.h"

namespace tessera::data {
namespace {

// The room left in each of a fixed number of bins, in a tree of maxima. Node 1 is the root, the children of
// node n are 2n and 2n + 1, and bin i is the leaf num_leaves_ + i. An inner node holds the most room of the
// bins below it.
class BinTree {
 public:
  BinTree(int64_t num_bins, int64_t capacity)
      : num_leaves_(
            static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(num_bins, 1))))),
        room_(static_cast<size_t>(2 * num_leaves_), capacity) {}

  // Returns the first bin with room for `need`, in O(log n): goes to the left child wherever that has enough.
  // There must be such a bin.
  int64_t first_with(int64_t need) const {
    int64_t node = 1;
    while (node < num_leaves_) node = room_[2 * node] >= need ? 2 * node : 2 * node + 1;
    return node - num_leaves_;
  }

  void take(int64_t bin, int64_t tokens) {
    int64_t node = bin + num_leaves_;
    room_[node] -= tokens;
    for (node /= 2; node >= 1; node /= 2) room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
  }

 private:
  int64_t num_leaves_;
  std::vector<int64_t> room_;
};

}  // namespace

PackPlan pack_first_fit_decreasing(std::span<const int64_t> lengths, int64_t capacity, int64_t group_size) {
  TESSERA_ASSERT(capacity > 0 && group_size > 0, "packing into nothing");
  const auto num_items = static_cast<int64_t>(lengths.size());
  PackPlan plan;
  plan.items.reserve(lengths.size());
  for (int64_t begin = 0; begin < num_items; begin += group_size) {
    const int64_t count = std::min(group_size, num_items - begin);
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });

    // Longest items first, each into the first bin that has room for it. With as many bins as items there
    // always is one.
    BinTree tree(count, capacity);
    std::vector<int64_t> bin_of(static_cast<size_t>(count));
    int64_t num_bins = 0;
    for (const int64_t item : order) {
      TESSERA_ASSERT(lengths[item] > 0 && lengths[item] <= capacity, "row that fits no sequence");
      const int64_t bin = tree.first_with(lengths[item]);
      tree.take(bin, lengths[item]);
      bin_of[item - begin] = bin;
      num_bins = std::max(num_bins, bin + 1);
    }

    // A counting sort by bin, which keeps the items within each bin ascending. next[bin] is first where the
    // bin begins in this group, then where its next item goes.
    std::vector<int64_t> next(static_cast<size_t>(num_bins) + 1, 0);
    for (const int64_t bin : bin_of) ++next[bin + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    const int64_t base = plan.offsets.back();
    for (int64_t bin = 1; bin <= num_bins; ++bin) plan.offsets.push_back(base + next[bin]);
    plan.items.resize(static_cast<size_t>(base + count));
    for (int64_t i = 0; i < count; ++i) plan.items[base + next[bin_of[i]]++] = begin + i;
  }
  return plan;
}

PackPlan pack_in_order(std::span<const int64_t> lengths, int64_t capacity) {
  PackPlan plan;
  int64_t room = 0;
  // The items are the indices in order, so only the offsets, where a new sequence begins, are to be found.
  for (size_t i = 0; i < lengths.size(); ++i) {
    TESSERA_ASSERT(lengths[i] > 0 && lengths[i] <= capacity, "row that fits no sequence");
    if (i > 0 && lengths[i] > room) plan.offsets.push_back(static_cast<int64_t>(i));
    if (i == 0 || lengths[i] > room) room = capacity;
    room -= lengths[i];
    plan.items.push_back(static_cast<int64_t>(i));
  }
  if (!lengths.empty()) plan.offsets.push_back(static_cast<int64_t>(lengths.size()));
  return plan;
}

PackPlan pack_one_each(int64_t num_items) {
  PackPlan plan;
  plan.offsets.resize(static_cast<size_t>(num_items) + 1);
  plan.items.resize(static_cast<size_t>(num_items));
  std::iota(plan.offsets.begin(), plan.offsets.end(), 0);
  std::iota(plan.items.begin(), plan.items.end(), 0);
  return plan;
}

double packing_efficiency(const PackPlan& plan, std::span<const int64_t> lengths, int64_t capacity) {
  if (plan.size() == 0 || capacity <= 0) return 0.0;
  double tokens = 0.0;
  for (const int64_t item : plan.items) tokens += static_cast<double>(lengths[item]);
  return tokens / (static_cast<double>(plan.size()) * static_cast<double>(capacity));
}

}  // namespace tessera::data
