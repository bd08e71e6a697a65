// Decides which blocks of a model each stage of a pipeline holds.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::parallel {

// Work of the parts of a model, in any unit: of what comes before the first block, of each block, and of what
// comes behind the last one.
struct PartCosts {
  double first = 0.0;
  std::vector<double> blocks;
  double last = 0.0;
};

// Returns the first block of each stage and, last, the number of blocks: stage s, on rank s % num_ranks,
// holds the blocks [result[s], result[s + 1]). The first stage also holds what comes before the blocks, the
// last one what comes behind them. Each stage has at least one block, and the largest work of a rank is as
// small as possible.
//
// Among such splits, with one stage a rank the result is the one whose first stages, which hold their
// activations longest, have the fewest blocks. With several stages a rank it is one whose largest work of a
// stage is as small as possible; if there are too many splits to try, it is the best of those that moving
// single blocks leads to. Throws Error(Config, "PIPELINE") for more stages than blocks.
std::vector<int64_t> split_blocks(const PartCosts& costs, int64_t num_ranks, int64_t stages_per_rank = 1);

}  // namespace tessera::parallel
