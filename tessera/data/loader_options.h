// How a recipe has rows dealt to ranks.
#pragma once

#include <cstdint>

#include "tessera/config/recipe.h"
#include "tessera/data/loader.h"

namespace tessera::data {

// The options of training by a recipe. `shuffle_merged_datasets: false` keeps the rows' order.
LoaderOptions train_loader_options(const config::Recipe& recipe, int64_t dp_rank, int64_t dp_size);
// The options of evaluation: no shuffling, one micro-batch a step.
LoaderOptions eval_loader_options(const config::Recipe& recipe, int64_t dp_rank, int64_t dp_size);

}  // namespace tessera::data
