// How a recipe's parallel sizes fit a number of ranks.
#pragma once

#include <cstdint>

#include "tessera/config/recipe.h"
#include "tessera/core/parallel_dims.h"

namespace tessera::config {

// The recipe's sizes, resolved for `world_size` ranks. Checks DeepSpeed's train_batch_size where given.
// Throws E-CONFIG-PARALLELISM with the factors, at a key of the recipe. Call it before any collective.
ParallelDims validate_parallelism(const Recipe& recipe, int64_t world_size);

// The recipe of any number of ranks for one process.
Recipe for_one_rank(Recipe recipe);

}  // namespace tessera::config
