// How a recipe's parallel sizes fit a number of ranks.
#pragma once

#include <cstdint>

#include "tessera/config/recipe.h"

namespace tessera::config {

struct ParallelSizes {
  int64_t dp_replicate = 1, dp_shard = 1, tp = 1;
};

// Resolves dp_shard_size -1 and checks dp_replicate_size x dp_shard_size x tensor_parallel_size = world_size,
// and DeepSpeed's train_batch_size where given. Throws E-CONFIG-PARALLELISM with the factors. Call it before any
// collective.
ParallelSizes validate_parallelism(const Recipe& recipe, int64_t world_size);

}  // namespace tessera::config
