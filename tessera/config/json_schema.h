// The JSON schema of recipes, for editors.
#pragma once

#include <string>

namespace tessera::config {

// JSON Schema (draft 2020-12) of a recipe, from the tables that read recipes; every key that is accepted is
// in it, with what docs/recipes.md says of it.
std::string json_schema();

}  // namespace tessera::config
