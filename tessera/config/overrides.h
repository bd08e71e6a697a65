// key=value arguments of the command line.
#pragma once

#include <string>
#include <vector>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// Sets each "a.b.0.c=value" in the recipe's tree, in order; later ones win. The value is YAML (a scalar,
// or a flow list or map); an empty value is null, which unsets the key. Maps are made on the way, list
// indices may name an existing item or the one past the end. Keys are not checked here.
// Problems: E-CONFIG-OVERRIDE for each malformed argument, of which nothing is set.
void apply_overrides(const std::vector<std::string>& overrides, Node& root, Problems& problems);

}  // namespace tessera::config
