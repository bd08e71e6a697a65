#include "tessera/parallel/pipeline/split_blocks.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::parallel {
namespace {

// Computes the work of a stage from the blocks that it holds.
class StageWork {
 public:
  StageWork(const PartCosts& costs) : costs_(costs), sums_(costs.blocks.size() + 1, 0.0) {
    for (size_t i = 0; i < costs.blocks.size(); ++i) sums_[i + 1] = sums_[i] + costs.blocks[i];
  }
  double of(size_t begin, size_t end) const {
    return sums_[end] - sums_[begin] + (begin == 0 ? costs_.first : 0.0) +
           (end == costs_.blocks.size() ? costs_.last : 0.0);
  }

 private:
  const PartCosts& costs_;
  std::vector<double> sums_;
};

// Returns the smallest possible value of the largest work of a stage.
double least_bottleneck(const StageWork& work, size_t num_blocks, size_t num_stages) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[end]: that value for the first `end` blocks in as many stages as were added so far.
  std::vector<double> best(num_blocks + 1, kNever);
  best[0] = 0.0;
  for (size_t stage = 0; stage < num_stages; ++stage) {
    std::vector<double> next(num_blocks + 1, kNever);
    for (size_t end = 1; end <= num_blocks; ++end) {
      for (size_t begin = stage; begin < end; ++begin) {
        next[end] = std::min(next[end], std::max(best[begin], work.of(begin, end)));
      }
    }
    best = std::move(next);
  }
  return best[num_blocks];
}

// Relative tolerance of comparisons, since sums in another order may differ in the last bits.
constexpr double kRounding = 1e-12;

// Returns bounds whose largest work of a stage is as small as possible. It fills the stages from the last one
// on, as far as that work allows, so the first stages get the fewest blocks.
std::vector<int64_t> split_by_stage(const StageWork& work, size_t num_blocks, size_t stages) {
  const double bottleneck = least_bottleneck(work, num_blocks, stages) * (1.0 + kRounding);
  std::vector<int64_t> bounds(stages + 1);
  size_t end = num_blocks;
  bounds[stages] = static_cast<int64_t>(end);
  for (size_t stage = stages - 1; stage > 0; --stage) {
    size_t begin = end - 1;
    while (begin > stage && work.of(begin - 1, end) <= bottleneck) --begin;
    end = begin;
    bounds[stage] = static_cast<int64_t>(begin);
  }
  return bounds;
}

// The largest work of a rank and of a stage; ranks are compared first.
struct Bottleneck {
  double rank = 0.0, stage = 0.0;
  bool is_below(const Bottleneck& other) const {
    const auto is_less = [](double a, double b) { return a < b * (1.0 - kRounding); };
    return is_less(rank, other.rank) || (!is_less(other.rank, rank) && is_less(stage, other.stage));
  }
};

// Finds bounds if stage s lies on rank s % num_ranks and ranks have several stages. First moves single blocks
// between stages as long as this helps, then tries all bounds, or the first kMostTries if there are more.
class RankSplit {
 public:
  RankSplit(const StageWork& work, size_t num_ranks, std::vector<int64_t> bounds)
      : work_(work), num_ranks_(num_ranks), best_(std::move(bounds)), squares_(squared_work(best_)) {}

  std::vector<int64_t> split() {
    while (move_block()) {
    }
    least_ = bottleneck(best_);
    std::vector<int64_t> bounds = best_;
    std::vector<double> ranks(num_ranks_, 0.0);
    try_all(bounds, 0, {}, ranks);
    return best_;
  }

 private:
  static constexpr int64_t kMostTries = 2'000'000;

  double work_of(const std::vector<int64_t>& bounds, size_t stage) const {
    return work_.of(static_cast<size_t>(bounds[stage]), static_cast<size_t>(bounds[stage + 1]));
  }
  Bottleneck bottleneck(const std::vector<int64_t>& bounds) const {
    Bottleneck found;
    std::vector<double> ranks(num_ranks_, 0.0);
    for (size_t stage = 0; stage + 1 < bounds.size(); ++stage) {
      const double work = work_of(bounds, stage);
      found.stage = std::max(found.stage, work);
      found.rank = std::max(found.rank, ranks[stage % num_ranks_] += work);
    }
    return found;
  }

  double squared_work(const std::vector<int64_t>& bounds) const {
    std::vector<double> ranks(num_ranks_, 0.0);
    for (size_t stage = 0; stage + 1 < bounds.size(); ++stage)
      ranks[stage % num_ranks_] += work_of(bounds, stage);
    double sum = 0.0;
    for (const double work : ranks) sum += work * work;
    return sum;
  }

  // Shifts the bounds from one to another by a block: a stage loses one, another gets one, and those between
  // keep their number. Keeps the first shift that brings the ranks' work closer together and returns true;
  // false if there is none.
  bool move_block() {
    const size_t last = best_.size() - 1;
    for (size_t from = 1; from < last; ++from) {
      for (size_t to = from; to < last; ++to) {
        for (const int64_t shift : {-1, 1}) {
          std::vector<int64_t> bounds = best_;
          for (size_t i = from; i <= to; ++i) bounds[i] += shift;
          if (bounds[from] <= bounds[from - 1] || bounds[to] >= bounds[to + 1]) continue;
          const double squares = squared_work(bounds);
          if (squares >= squares_ * (1.0 - kRounding)) continue;
          squares_ = squares;
          best_ = bounds;
          return true;
        }
      }
    }
    return false;
  }

  // Tries all bounds of the stages from `stage` on. `before` is the bottleneck of the stages before, `ranks`
  // the work of the ranks so far.
  void try_all(std::vector<int64_t>& bounds, size_t stage, const Bottleneck& before,
               std::vector<double>& ranks) {
    const size_t stages = bounds.size() - 1;
    if (stage == stages) {
      best_ = bounds;
      least_ = before;
      return;
    }
    const int64_t left = static_cast<int64_t>(stages - stage) - 1, first = bounds[stage];
    const int64_t most = best_.back() - left, least = stage + 1 == stages ? most : first + 1;
    for (int64_t end = least; end <= most; ++end) {
      if (++num_tries_ > kMostTries) return;
      const double work = work_.of(static_cast<size_t>(first), static_cast<size_t>(end));
      double& of_rank = ranks[stage % num_ranks_];
      const Bottleneck now{std::max(before.rank, of_rank + work), std::max(before.stage, work)};
      if (!now.is_below(least_)) return;  // nor is it with more blocks in this stage
      bounds[stage + 1] = end;
      of_rank += work;
      try_all(bounds, stage + 1, now, ranks);
      of_rank -= work;
    }
  }

  const StageWork& work_;
  const size_t num_ranks_;
  std::vector<int64_t> best_;
  double squares_;  // sum of the squares of the ranks' work
  Bottleneck least_;
  int64_t num_tries_ = 0;
};

}  // namespace

std::vector<int64_t> split_blocks(const PartCosts& costs, int64_t num_ranks, int64_t stages_per_rank) {
  TESSERA_ASSERT(num_ranks >= 1 && stages_per_rank >= 1, "a pipeline of no stages");
  const size_t num_blocks = costs.blocks.size(), stages = static_cast<size_t>(num_ranks * stages_per_rank);
  if (stages > num_blocks) {
    throw Error(ErrorKind::Config, "PIPELINE", "the model has too few blocks for the pipeline")
        .got(std::to_string(stages) + " stages and " + std::to_string(num_blocks) + " blocks")
        .need("at least one block per stage");
  }
  const StageWork work(costs);
  std::vector<int64_t> by_stage = split_by_stage(work, num_blocks, stages);
  if (stages_per_rank == 1) return by_stage;
  return RankSplit(work, static_cast<size_t>(num_ranks), std::move(by_stage)).split();
}

}  // namespace tessera::parallel
