// A YAML recipe, with command-line overrides, as a checked Recipe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config/recipe.h"

namespace tessera::config {

// Reads and checks the recipe at `path`. `accelerate_config`, where it is not empty, is a configuration file
// of Accelerate that says more: what both say must agree. `overrides` are "key=value" with dotted keys
// ("datasets.0.path=x.jsonl"); they replace what the file says. Relative paths are resolved
// (resolve_paths.h), so that the model folder and the data are known to exist.
// Throws an Error of kind Config that names file, line, column and key path; where several things are wrong
// its text has a line for each. Keys that are accepted without effect are named in one warning a file.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides = {},
                   const std::string& accelerate_config = "");

// The same, where no file but these two and a DeepSpeed file that they name need be there.
Recipe load_recipe_alone(const std::string& path, const std::vector<std::string>& overrides = {},
                         const std::string& accelerate_config = "");

// The same for a text that is already read. `file_name` names it in errors; its folder is the recipe's.
// Paths are neither resolved nor opened, but for a DeepSpeed file that the text names.
Recipe parse_recipe(std::string_view text, std::string_view file_name,
                    const std::vector<std::string>& overrides = {});

// The resolved recipe as YAML with native keys only. parse_recipe() of it gives the same recipe.
std::string dump_recipe(const Recipe& recipe);
// The same with a comment behind each value: the file and line that it comes from, and the key that stands
// there where it is another spelling, "command line", or "default".
std::string explain_recipe(const Recipe& recipe);
// The top-level keys of what dump_recipe() gave, in its order, each with the text below it as it stands
// there.
std::vector<std::pair<std::string, std::string>> top_level_values(const std::string& dumped);

// Every key path a recipe may hold, native ones first ("learning_rate", "datasets.0.path",
// "fsdp_config.reshard_after_forward", ...): for completion and help.
std::vector<std::string> known_keys();

}  // namespace tessera::config
