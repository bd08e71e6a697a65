// Checks that look at several keys together.
#pragma once

#include "tessera/config/node.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// On the translated map, before binding: resolves DeepSpeed-like `batch_size`, drops a key of the file
// that a command-line key excludes, and refuses keys that exclude each other.
// Throws E-CONFIG-CONFLICT naming both keys, E-CONFIG-MISSING naming the required keys that are absent.
void check_exclusive_keys(Node& map);

// On the filled recipe: rules between values. Throws E-CONFIG-CONFLICT, -RANGE or -MISSING; warns about
// keys that have no effect without another one.
void validate(const Recipe& recipe);

}  // namespace tessera::config
