// Applies the key=value arguments of the command line.
#pragma once

#include <string>
#include <vector>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// Sets each "a.b.0.c=value" in the recipe's tree, in order, so that a later one wins. The value is YAML (a
// scalar, or a flow list or map); an empty value is null, which unsets the key. Missing maps are made. A list
// index may name an existing item or the one past the end. Keys are not checked here. Problems:
// E-CONFIG-OVERRIDE for each malformed argument, which sets nothing.
void apply_overrides(const std::vector<std::string>& overrides, Node& root, Problems& problems);

}  // namespace tessera::config
