// Converts between a map of native keys and the typed structs, by the tables of schema.h.
#pragma once

#include <map>
#include <string>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// Fills `recipe`, and its key_places, from a map that holds native keys only (aliases translated; entries of
// `datasets` translated as well). A null value leaves the default. Problems: E-CONFIG-TYPE (wrong type, null
// item), -RANGE (out of bounds, NaN, infinite, overflow), -VALUE (not one of a key's values) and -UNSUPPORTED
// (a known value that is not supported), each with place and key path.
void bind_recipe(const Node& map, Recipe& recipe, Problems& problems);

enum class KeysToWrite { All, Given };
enum class PlacesToWrite { None, AsComments };

// Writes the recipe as YAML, one native key a line; loading the text again gives the same recipe.
// KeysToWrite::Given writes only the keys that are in recipe.key_places. PlacesToWrite::AsComments puts
// behind each value where it was set: "r.yaml:3" (and the spelling that stands there, if it is not the native
// key), "command line" or "default".
std::string write_yaml(const Recipe& recipe, KeysToWrite keys = KeysToWrite::All,
                       PlacesToWrite places = PlacesToWrite::None);

}  // namespace tessera::config
