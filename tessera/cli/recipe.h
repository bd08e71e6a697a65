// The verbs below `tessera recipe` that have files of their own.
#pragma once

#include "tessera/cli/verbs.h"

namespace tessera::cli {

void add_recipe_init(CLI::App& recipe, Action& action);

}  // namespace tessera::cli
