// Checks that a recipe's parallel sizes fit a number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/config/recipe.h"
#include "tessera/core/parallel_dims.h"

namespace tessera::config {

// Returns the recipe's parallel sizes, resolved for `world_size` ranks. Also checks global_batch_size, if it
// is given, as with_accumulation() does. Throws E-CONFIG-PARALLELISM with the factors, at a key of the
// recipe. Must be called before any collective.
ParallelDims validate_parallelism(const Recipe& recipe, int64_t world_size);

// Returns the recipe with the gradient_accumulation_steps that make its global_batch_size, if it gives one,
// of micro_batch_size and `readers`, the ranks that read different data. Throws E-CONFIG-PARALLELISM if none
// do, or if the recipe gives other ones.
Recipe with_accumulation(Recipe recipe, int64_t readers);
// Returns the recipe with the gradient_accumulation_steps by which one rank takes all sequences of a step
// with global_batch_size, or nearly all where micro_batch_size does not divide it.
Recipe for_one_reader(Recipe recipe);

// Returns the recipe with all parallel sizes at their defaults, so that one process can run it.
Recipe for_one_rank(Recipe recipe);

}  // namespace tessera::config
