// Lists what a recipe reads, so that no output takes its place.
#pragma once

#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/io/run_inputs.h"

namespace tessera::train {

// Returns the model, tokenizer and adapter that a recipe names.
std::vector<io::ResultInput> model_inputs(const config::Recipe& recipe);

// Returns every file and folder that the recipe names for reading, and the files that it was read from. The
// folder of prepared rows is one of them: inside the output folder it would keep the result from taking its
// place.
std::vector<io::ResultInput> recipe_inputs(const config::Recipe& recipe);

}  // namespace tessera::train
