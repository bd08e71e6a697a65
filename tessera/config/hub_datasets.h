// Datasets of the hub: which of their files an entry of a recipe needs.
#pragma once

#include <string>

#include "tessera/config/data_config.h"
#include "tessera/hub/choose_files.h"

namespace tessera::config {

// Returns whether `path` can be the name of a dataset that is fetched from the hub: "org/name" without the
// ending of a data file.
bool is_dataset_name(const std::string& path);

// Returns what chooses the entry's files: those that `data_files` match; else those of all splits that the
// card (README.md) lists for `name`, or for the default configuration; else all data files, of a folder
// `name` if there is one. `dataset` must stay for as long as the result is used.
hub::ChooseFiles choose_dataset(const DatasetConfig& dataset);

// Returns the folder in the cache with the files of the dataset that the entry's path names. Throws what
// hub::fetch() throws.
std::string fetch_dataset(const DatasetConfig& dataset);

}  // namespace tessera::config
