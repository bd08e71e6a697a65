// The results of `tessera evaluate --tasks`: their files, tables and comparisons.
#pragma once

#include <string>
#include <vector>

#include "tessera/cli/task_options.h"
#include "tessera/scoring/results.h"
#include "tessera/scoring/task_files.h"

namespace tessera::cli {

struct TaskResults {
  std::string name;  // of the adapter; "" if it has none
  std::vector<scoring::Result> results = {};
  scoring::Json samples = scoring::Json::object();
  scoring::Json facts = {};  // of the run
};

// Refuses an --output that cannot be written, with io::check_output_file(): one file, or one for each of the
// adapters' names.
void check_outputs(const TaskRunOptions& options, const std::vector<std::string>& names);

// Returns the samples of a results file. Throws Error(Config) for another file.
scoring::Json read_results_samples(const std::string& path);

// Returns the contents of a results file, which --output has written. Prints the tables, unless --json asks
// for these contents in their place.
scoring::Json tell_results(TaskResults made, const scoring::TaskSelection& selection,
                           const TaskRunOptions& options, const scoring::Json& baseline);

// Returns the text of a results file.
std::string text_of(const scoring::Json& json);

// Compares two results files that hold samples, and prints the differences.
int compare_results(const std::string& results, const std::string& baseline, bool as_json);

}  // namespace tessera::cli
