// Checks that look at several keys together.
#pragma once

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// On the filled recipe: rules between values. Problems: E-CONFIG-CONFLICT, -RANGE or -MISSING; warns about
// keys that have no effect without another one. What follows from another problem is left out.
void validate(const Recipe& recipe, Problems& problems);

}  // namespace tessera::config
