#include "tessera/data/deduplicate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_map>

#include "tessera/core/run_on_threads.h"

namespace tessera::data {
namespace {

constexpr size_t kShingle = 5;  // tokens of a shingle
constexpr size_t kBins = 128;   // bins of a signature

bool is_same(const RowStore& store, int64_t a, int64_t b) {
  const auto same_run = [](const LabelRun& x, const LabelRun& y) {
    return x.begin == y.begin && x.end == y.end;
  };
  const auto runs_a = store.label_runs(a), runs_b = store.label_runs(b);
  return std::ranges::equal(store.tokens(a), store.tokens(b)) &&
         std::ranges::equal(runs_a, runs_b, same_run) &&
         std::ranges::equal(store.targets(a), store.targets(b)) &&
         std::ranges::equal(store.type_ids(a), store.type_ids(b));
}

uint64_t mix(uint64_t value) {  // the finaliser of SplitMix64
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

template <class Visit>
void visit_shingles(std::span<const int32_t> tokens, Visit&& visit) {
  for (size_t i = 0; i + kShingle <= tokens.size(); ++i) {
    uint64_t hash = 0x9E3779B97F4A7C15U;
    for (size_t j = 0; j < kShingle; ++j) hash = mix(hash ^ static_cast<uint64_t>(tokens[i + j]));
    visit(hash);
  }
}

// Returns the MinHash signature of a row: the smallest hash in each bin of one permutation (Li, Owen, Zhang:
// "One Permutation Hashing", 2012). An empty bin takes a hash made from that of the next bin that is not
// empty.
std::array<uint64_t, kBins> signature(std::span<const int32_t> tokens) {
  constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
  std::array<uint64_t, kBins> bins;
  bins.fill(kEmpty);
  visit_shingles(tokens, [&](uint64_t hash) {
    uint64_t& bin = bins[hash % kBins];
    bin = std::min(bin, hash / kBins);
  });
  const auto own = bins;
  for (size_t i = 0; i < kBins; ++i) {
    for (size_t step = 0; bins[i] == kEmpty && step < kBins; ++step) {
      const uint64_t taken = own[(i + step) % kBins];
      if (taken != kEmpty) bins[i] = mix(taken + step);
    }
  }
  return bins;
}

std::vector<uint64_t> shingles_of(std::span<const int32_t> tokens) {
  std::vector<uint64_t> hashes;
  visit_shingles(tokens, [&](uint64_t hash) { hashes.push_back(hash); });
  std::ranges::sort(hashes);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  return hashes;
}

double similarity_of(const RowStore& store, int64_t a, int64_t b) {
  const auto left = shingles_of(store.tokens(a)), right = shingles_of(store.tokens(b));
  std::vector<uint64_t> common;
  std::ranges::set_intersection(left, right, std::back_inserter(common));
  const auto both = static_cast<double>(left.size() + right.size() - common.size());
  return both > 0 ? static_cast<double>(common.size()) / both : 0.0;
}

// Returns the bins of a band. Two rows of similarity s share one of the bands with probability
// 1 - (1 - s^width)^bands. All bins are used, and the bands are the widest ones, with the fewest rows to
// compare in vain, that find kFound of the pairs at the similarity that is asked for.
size_t width_of_bands(double similarity) {
  constexpr double kFound = 0.95;
  for (size_t width = kBins; width > 1; --width) {
    const double missed = std::pow(1 - std::pow(similarity, width), kBins / width);
    if (missed <= 1 - kFound) return width;
  }
  return 1;
}

// The bands of all rows, some at a time: a hash of each, by which the rows that share a band are found.
class Bands {
 public:
  Bands(const RowStore& store, size_t width) : store_(store), width_(width) {}

  static constexpr size_t kAtOnce = 32;  // so that memory does not grow with the number of bands

  // Hashes the bands [first, first + count) of the rows for which `is_compared` holds.
  template <class IsCompared>
  void hash(size_t first, size_t count, int64_t num_threads, const IsCompared& is_compared) {
    count_ = count;
    const auto num_rows = static_cast<size_t>(store_.size());
    hashes_.resize(num_rows * count);
    constexpr size_t kBlock = 1024;
    run_on_threads((num_rows + kBlock - 1) / kBlock, num_threads, [&](size_t block) {
      for (size_t row = block * kBlock; row < std::min(num_rows, (block + 1) * kBlock); ++row)
        if (is_compared(static_cast<int64_t>(row))) hash_row(row, first);
    });
  }

  // Returns the hash of a band of those that were hashed. Rows that differ there may have the same one.
  uint32_t at(int64_t row, size_t band) const { return hashes_[static_cast<size_t>(row) * count_ + band]; }

 private:
  void hash_row(size_t row, size_t first) {
    const auto bins = signature(store_.tokens(static_cast<int64_t>(row)));
    for (size_t band = 0; band < count_; ++band) {
      uint64_t hash = first + band;
      for (size_t i = 0; i < width_; ++i) hash = mix(hash ^ bins[(first + band) * width_ + i]);
      hashes_[row * count_ + band] = static_cast<uint32_t>(hash);
    }
  }

  const RowStore& store_;
  const size_t width_;
  size_t count_ = 0;
  std::vector<uint32_t> hashes_;
};

}  // namespace

std::vector<bool> find_duplicates(const RowStore& store) {
  std::vector<bool> is_duplicate(static_cast<size_t>(store.size()), false);
  std::unordered_multimap<uint64_t, int64_t> first_rows;
  first_rows.reserve(static_cast<size_t>(store.size()));
  for (int64_t row = 0; row < store.size(); ++row) {
    const auto [begin, end] = first_rows.equal_range(store.hash(row));
    is_duplicate[row] =
        std::any_of(begin, end, [&](const auto& other) { return is_same(store, row, other.second); });
    if (!is_duplicate[row]) first_rows.emplace(store.hash(row), row);
  }
  return is_duplicate;
}

void find_near_duplicates(const RowStore& store, double similarity, int64_t num_threads,
                          std::vector<bool>& is_left_out) {
  const size_t width = width_of_bands(similarity), num_bands = kBins / width;
  const auto is_compared = [&](int64_t row) {
    return !is_left_out[row] && store.length(row) >= static_cast<int64_t>(kShingle);
  };
  Bands bands(store, width);
  std::vector<std::pair<uint32_t, int64_t>> order;
  for (size_t first = 0; first < num_bands; first += Bands::kAtOnce) {
    const size_t count = std::min(Bands::kAtOnce, num_bands - first);
    bands.hash(first, count, num_threads, is_compared);
    for (size_t band = 0; band < count; ++band) {
      order.clear();
      for (int64_t row = 0; row < store.size(); ++row)
        if (is_compared(row)) order.emplace_back(bands.at(row, band), row);
      std::ranges::sort(order);
      for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
        while (end < order.size() && order[end].first == order[begin].first) ++end;
        // All rows that share a band are compared with the first of them.
        for (size_t i = begin + 1; i < end; ++i) {
          if (similarity_of(store, order[begin].second, order[i].second) >= similarity)
            is_left_out[order[i].second] = true;
        }
      }
    }
  }
}

}  // namespace tessera::data
