// Checks that look at several keys together.
#pragma once

#include "tessera/config/node.h"
#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// On the translated map, before binding: resolves DeepSpeed-like `batch_size` and how often to evaluate, and
// drops a key of the file that a command-line key excludes. Problems: E-CONFIG-CONFLICT naming both keys.
void settle_keys(Node& map, Problems& problems);
// Problem: E-CONFIG-MISSING, naming the required keys that are absent.
void check_required(const Node& map, Problems& problems);

// On the filled recipe: rules between values. Problems: E-CONFIG-CONFLICT, -RANGE or -MISSING; warns about
// keys that have no effect without another one. What follows from another problem is left out.
void validate(const Recipe& recipe, Problems& problems);

}  // namespace tessera::config
