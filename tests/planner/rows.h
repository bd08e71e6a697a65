// Published measurements of training runs, and what the planner says to each.
#pragma once

#include <string>
#include <vector>

#include "tessera/planner/choice.h"
#include "tessera/planner/cluster.h"
#include "tessera/planner/constants.h"
#include "tessera/planner/model_work.h"

namespace tessera::planner {

struct Row {
  std::string name;
  ModelWork work;
  Cluster cluster;
  Job job;
  Choice choice;
  Software software;
  double tokens_per_s = 0.0;  // of a device
  double memory_gib = 0.0;    // 0 = not stated
  bool is_new_device = false;
  // The planner is known to be off by more than it promises.
  bool misses_throughput = false, misses_memory = false;
};

// The constants that a fit varies, as constants.h has them.
struct Constants {
  double share_a100 = kShareA100, share_h100 = kShareH100, half_dim = kHalfDim;
  double eager_traffic = kEager.traffic, compiled_traffic = kCompiled.traffic;
  double eager_saved = kEager.saved, compiled_saved = kCompiled.saved;
};

struct Prediction {
  double tokens_per_s = 0.0, memory_gib = 0.0;
};

// Reads a file of rows, such as calibration.yaml. Throws Error(Config) for anything that it does not know.
std::vector<Row> load_rows(const std::string& path);

Prediction predict(const Row& row, const Constants& constants = {});

// Returns the error of a prediction, in percent, with its sign: above 0 where it promises too much.
double error_percent(double predicted, double measured);

// Returns the line of docs/planner.md about a row.
std::string table_line(const Row& row);

}  // namespace tessera::planner
