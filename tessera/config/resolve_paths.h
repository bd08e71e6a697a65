// Turns the relative paths of a recipe into paths that open from the current folder.
#pragma once

#include <string>

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"

namespace tessera::config {

// `path` as it is where it is absolute or exists, seen from the current folder; else `folder`/`path` where
// that exists; else as it is.
std::string resolve_path(const std::string& path, const std::string& folder);

// Does so with the recipe's folder for base_model, tokenizer_config, lora_model_dir, chat_template_jinja
// (when it names a file) and the datasets. A name of the hub becomes its folder in the cache. "path: json"
// with data_files, the datasets-library form, becomes a folder and its files. Problems: E-CONFIG-NOT-FOUND,
// or -NOT-A-FOLDER for model folders, naming key and line.
void resolve_paths(Recipe& recipe, Problems& problems);

// The recipe with every path absolute: it means the same from any folder.
Recipe with_absolute_paths(Recipe recipe);

// "parquet" for a file of tables of that name, csv and arrow likewise; empty for others. Such files are not
// read: conversion_hint() says how to make JSON Lines of one.
std::string table_format(const std::string& path);
std::string conversion_hint(const std::string& path);

}  // namespace tessera::config
