// A recipe to start from.
#pragma once

#include <string>
#include <vector>

namespace tessera::config {

// A commented recipe: what `assignments` ("key=value", as load_recipe() takes overrides) say, and below it
// the keys that recipes usually set, or all of them, as comments with their defaults, each with what
// docs/recipes.md says of it. Throws what load_recipe() throws for them, E-CONFIG-MISSING too.
std::string new_recipe(const std::vector<std::string>& assignments, bool with_all_keys);

// The dataset type that the first row of a file seems to be of: "chat_template", "alpaca", "completion"; ""
// where it holds token ids, or tells nothing.
std::string guess_dataset_type(const std::string& file);

}  // namespace tessera::config
