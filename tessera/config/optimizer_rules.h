// Reads and checks what a recipe says of its optimizer.
#pragma once

#include "tessera/config/recipe.h"
#include "tessera/core/optimizer_table.h"

namespace tessera::config {

// Returns the numbers of the recipe's optimizer: its defaults, and what optimizer_args and the keys
// adam_beta1, adam_beta2 and adam_epsilon set, where the recipe gives them. The recipe is valid.
OptimizerOptions optimizer_options(const Recipe& recipe);

}  // namespace tessera::config
