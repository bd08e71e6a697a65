// Turns the relative paths of a recipe into paths that open from the current folder.
#pragma once

#include <string>

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// Returns `path` unchanged if it is absolute or exists as seen from the current folder; else `folder`/`path`
// if that exists; else `path` unchanged.
std::string resolve_path(const std::string& path, const std::string& folder);

// Tells whether an entry of eval_tasks is the path of a task file, and not the name of a built-in task.
bool is_task_file(const std::string& name);

// Applies resolve_path() with the recipe's folder to base_model, tokenizer_config, lora_model_dir,
// resume_from_checkpoint, chat_template_jinja (if it names a file), eval_tasks_data, the files of eval_tasks
// and the datasets. A name of the hub
// becomes its folder in the cache. "path: json" with data_files, the form of the `datasets` library, becomes
// a folder and its files. Problems: E-CONFIG-NOT-FOUND, or -NOT-A-FOLDER or -NOT-A-MODEL for model folders,
// naming key and line.
void resolve_paths(Recipe& recipe, Problems& problems);

// Returns the recipe with every path absolute, so that it means the same from any folder.
Recipe with_absolute_paths(Recipe recipe);

// Returns the table format that a file's name tells, "csv", "parquet" or "arrow"; "" for other names.
// conversion_hint() says how to make JSON Lines of such a file, for builds that cannot read parquet and
// arrow.
std::string table_format(const std::string& path);
std::string conversion_hint(const std::string& path);

}  // namespace tessera::config
