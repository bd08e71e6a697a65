// The JSON schema of recipes, for editors.
#pragma once

#include <string>

namespace tessera::config {

// Returns a JSON Schema (draft 2020-12) of recipes, made from the tables that read recipes. It holds every
// accepted key, with its description in docs/recipes.md.
std::string json_schema();

}  // namespace tessera::config
