// key=value arguments of the command line.
#pragma once

#include <string>
#include <vector>

#include "tessera/config/node.h"

namespace tessera::config {

// Sets each "a.b.0.c=value" in the recipe's tree, in order; later ones win. The value is YAML (a scalar,
// or a flow list or map); an empty value is null, which unsets the key. Maps are made on the way, list
// indices may name an existing item or the one past the end. Keys are not checked here.
// Throws E-CONFIG-OVERRIDE for a malformed argument.
void apply_overrides(const std::vector<std::string>& overrides, Node& root);

}  // namespace tessera::config
