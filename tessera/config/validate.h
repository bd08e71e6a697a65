// Checks rules that involve several keys of a recipe.
#pragma once

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// Checks rules between the values of the filled recipe. Problems: E-CONFIG-CONFLICT, -RANGE, -MISSING or
// -UNSUPPORTED; warns about keys that have no effect without another one. Findings that only follow from
// another problem are left out.
void validate(const Recipe& recipe, Problems& problems);

}  // namespace tessera::config
