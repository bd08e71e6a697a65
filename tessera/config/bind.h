// Between a map of native keys and the typed structs, by the tables of schema.h.
#pragma once

#include <map>
#include <string>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// Fills `recipe` from a map that holds native keys only (aliases translated). A null value leaves the
// default. `datasets` items must be translated as well. Problems: E-CONFIG-TYPE (wrong type, null item),
// -RANGE (out of bounds, NaN, infinite, overflow), -VALUE (not one of a key's values) and
// -UNSUPPORTED (a known value that is not built), each with place and key path.
// Fills recipe.key_places.
void bind_recipe(const Node& map, Recipe& recipe, Problems& problems);

enum class KeysToWrite { All, Given };
enum class PlacesToWrite { None, AsComments };

// The recipe as YAML, one native key a line; loading it again gives the same recipe. Given: only keys that
// are in recipe.key_places. AsComments: behind each value where it comes from, "r.yaml:3", with the spelling
// that stands there where it is another, "command line" or "default".
std::string write_yaml(const Recipe& recipe, KeysToWrite keys = KeysToWrite::All,
                       PlacesToWrite places = PlacesToWrite::None);

}  // namespace tessera::config
