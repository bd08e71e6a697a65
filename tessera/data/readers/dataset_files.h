// Finds the files that a dataset entry names.
#pragma once

#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/data/readers/split.h"

namespace tessera::data {

struct DatasetFile {
  std::string path;
  FileFormat format = FileFormat::JsonLines;
};

// Returns the files of an entry in a fixed order:
// - `path` itself, or the files that it matches as a pattern;
// - of a folder that `save_to_disk` of the datasets library wrote, the files of the split;
// - of any other folder the files that `data_files` match (*, ?, [a-z]; ** crosses folders); else those that
//   the folder's card (README.md) names for the configuration and split; else all below it in the order of
//   their names, or those of the split where names tell splits (split_of_file()).
// A relative path that is not in the current folder starts at `source_folder`. Throws Error(Config) at the
// entry for a missing path, an unknown format or no files, and where parquet or arrow files cannot be read.
std::vector<DatasetFile> find_dataset_files(const config::DatasetConfig& dataset,
                                            const std::string& source_folder);

// Returns the split that an entry of test_datasets means: its own; if it names none, `test` if the dataset
// has that, else `validation`, else the default. Throws what find_dataset_files() throws.
std::string split_to_evaluate(const config::DatasetConfig& dataset, const std::string& source_folder);

}  // namespace tessera::data
