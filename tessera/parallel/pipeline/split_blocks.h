// Which blocks of a model each stage of a pipeline holds.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::parallel {

// Work of the parts of a model, in any unit: what comes before the first block, each block, what comes behind
// the last one.
struct PartCosts {
  double first = 0.0;
  std::vector<double> blocks;
  double last = 0.0;
};

// The first block of each stage, and the number of blocks: stage s, of rank s % num_ranks, holds the blocks
// [s] to [s + 1]. The first stage also holds what comes before the blocks, the last one what comes behind.
// Each has a block at least, and the rank with the most work has as little as can be. Of such splits, with
// one stage a rank the one whose first stages, which hold their activations longest, have the fewest; with
// several one whose stage with the most work has as little as can be (where the splits are too many to try,
// the best of those that moving single blocks leads to). Throws Error(Config, "PIPELINE") for more stages
// than blocks.
std::vector<int64_t> split_blocks(const PartCosts& costs, int64_t num_ranks, int64_t stages_per_rank = 1);

}  // namespace tessera::parallel
