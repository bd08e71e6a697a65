// The options by which a recipe has rows dealt to ranks.
#pragma once

#include <cstdint>

#include "tessera/config/recipe.h"
#include "tessera/data/loader.h"

namespace tessera::data {

// Returns the options of training. `shuffle_merged_datasets: false` keeps the rows' order.
LoaderOptions train_loader_options(const config::Recipe& recipe, int64_t dp_rank, int64_t dp_size);
// Returns the options of evaluation: no shuffling, and one micro-batch in a step.
LoaderOptions eval_loader_options(const config::Recipe& recipe, int64_t dp_rank, int64_t dp_size);

}  // namespace tessera::data
