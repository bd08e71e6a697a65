// Reads a YAML recipe, with command-line overrides, into a checked Recipe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config/recipe.h"

namespace tessera::config {

// Reads and checks the recipe at `path`. `accelerate_config`, if not empty, is a configuration file of
// Accelerate; keys that both files set must agree. `overrides` are "key=value" with dotted keys
// ("datasets.0.path=x.jsonl"); they replace the file's values. Relative paths are resolved (resolve_paths.h),
// so the model folder and the data are known to exist.
// Throws an Error of kind Config that names file, line, column and key path; if several things are wrong its
// text has a line for each. Keys that are accepted without effect are named in one warning a file.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides = {},
                   const std::string& accelerate_config = "");

// Does what load_recipe() does, but neither resolves nor opens paths, so that only these two files, and a
// DeepSpeed file that they name, need to be there.
Recipe load_recipe_alone(const std::string& path, const std::vector<std::string>& overrides = {},
                         const std::string& accelerate_config = "");

// Does what load_recipe_alone() does for a text that is already read. `file_name` names it in errors; its
// folder is the recipe's.
Recipe parse_recipe(std::string_view text, std::string_view file_name,
                    const std::vector<std::string>& overrides = {});

// Returns the resolved recipe as YAML with native keys only. parse_recipe() of it gives the same recipe.
std::string dump_recipe(const Recipe& recipe);
// Returns dump_recipe() with a comment behind each value that says where it was set: the file and line (and
// the key that stands there, if it is another spelling), "command line", or "default".
std::string explain_recipe(const Recipe& recipe);
// Splits a text that dump_recipe() returned into its top-level keys, in its order, each with the text of its
// value.
std::vector<std::pair<std::string, std::string>> top_level_values(const std::string& dumped);

// Returns every key path that a recipe may hold, native ones first ("learning_rate", "datasets.0.path",
// "fsdp_config.reshard_after_forward", ...), for completion and help. Keys that are refused are not among
// them.
std::vector<std::string> known_keys();

}  // namespace tessera::config
