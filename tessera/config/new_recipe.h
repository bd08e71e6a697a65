// Writes a recipe to start from.
#pragma once

#include <string>
#include <vector>

namespace tessera::config {

// Returns a commented recipe: the keys that `assignments` ("key=value", as load_recipe() takes overrides)
// set, and the other usual keys (all keys, if `with_all_keys`) as comments with their defaults. Each has its
// description from docs/recipes.md. Throws the errors of parse_recipe(), E-CONFIG-MISSING among them.
std::string new_recipe(const std::vector<std::string>& assignments, bool with_all_keys);

// Guesses from the first 4096 bytes of a file the dataset type of its rows: "chat_template", "sharegpt",
// "alpaca" or "completion"; "" when they hold token ids or nothing known.
std::string guess_dataset_type(const std::string& file);

}  // namespace tessera::config
