// The documents of a task: the records of a split of its data.
#pragma once

#include <string>
#include <vector>

#include "tessera/scoring/task_config.h"

namespace tessera::scoring {

struct Documents {
  std::vector<Json> rows;            // objects with the same keys; null where a record has no value
  std::vector<std::string> columns;  // these keys
};

// Reads a split of the task's data, as the datasets library would: columns of a CSV file whose cells are all
// numbers or all booleans become such. Files that dataset_kwargs names are searched for below `data_folder`,
// in the current folder and beside the task file. Other data is the local folder dataset_path, with a folder
// dataset_name in it if there is one; below `data_folder` its last part, or the name of the task, does too.
// Throws Error(Config) where the data is not found, and Error(Data) for a broken file.
Documents read_documents(const TaskConfig& task, const std::string& split, const std::string& data_folder);

}  // namespace tessera::scoring
