// Reads what the output folder of a run tells of it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/report/run_samples.h"

namespace tessera::report {

// One line of metrics.jsonl.
struct Record {
  int64_t step = 0;
  // All other numbers, nested ones under joined names: "loss", "losses/chats", "traffic/tp/wait_s".
  std::map<std::string, double> numbers;
  std::set<std::string>
      missing;  // the names of those that are null, as the trainer writes what is not finite
};

// Pairs of a step and a value.
using Points = std::vector<std::pair<double, double>>;

struct RunRecord {
  std::string name;    // of the folder, with as much of its path as tells it from the other runs
  std::string recipe;  // the text of recipe.yaml; empty if there is none
  bool is_unfinished = false;
  std::vector<Record> steps, evaluations;  // in the order of the file
  std::vector<SampleStep> samples;
  std::vector<int64_t> checkpoints;  // the steps of those that are there, ascending

  // Gives (step, value) of the records that have the number, of both kinds of records.
  Points points(const std::string& number) const;

  // Gives how many of the records have null for the number.
  size_t num_missing(const std::string& number) const;
};

// Reads the runs of these folders: output folders, those of runs that still go on, or folders of such
// folders. A line that a run has begun to write is left out. Throws Error(Config, "REPORT") for a folder that
// has no run, Error(Data, "METRICS") at a line that is no record, Error(Data, "SAMPLES"), and
// Error(Storage).
std::vector<RunRecord> read_runs(const std::vector<std::string>& folders);

}  // namespace tessera::report
