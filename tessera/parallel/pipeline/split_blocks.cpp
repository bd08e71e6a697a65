#include "tessera/parallel/pipeline/split_blocks.h"

#include <algorithm>
#include <limits>
#include <string>

#include "tessera/core/error.h"

namespace tessera::parallel {
namespace {

// The work of a stage, by the blocks that it holds.
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

// The work of the stage with the most, where it is least.
double least_bottleneck(const StageWork& work, size_t num_blocks, size_t num_stages) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // Of the first `end` blocks in as many stages as were added so far.
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

}  // namespace

std::vector<int64_t> split_blocks(const PartCosts& costs, int64_t num_stages) {
  TESSERA_ASSERT(num_stages >= 1, "a pipeline of no stages");
  const size_t num_blocks = costs.blocks.size(), stages = static_cast<size_t>(num_stages);
  if (stages > num_blocks) {
    throw Error(ErrorKind::Config, "PIPELINE", "the model has too few blocks for the pipeline")
        .got(std::to_string(num_stages) + " stages and " + std::to_string(num_blocks) + " blocks")
        .need("at least one block a stage");
  }
  const StageWork work(costs);
  // Sums in another order may differ in the last bits.
  const double bottleneck = least_bottleneck(work, num_blocks, stages) * (1.0 + 1e-12);
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

}  // namespace tessera::parallel
