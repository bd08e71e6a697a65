// The numbers that trackers show, under the names that all of them use.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/train/metrics.h"

namespace tessera::train {

using Scalars = std::vector<std::pair<std::string, double>>;

// "train/loss", "train/learning_rate", "train/loss/<dataset>", ...
Scalars scalars_of(const StepMetrics& line);
// A scalar's name in two: "train/loss/chats" is "train/loss" of the dataset "chats".
struct ScalarName {
  std::string metric;
  std::optional<std::string> dataset;
};
ScalarName split_name(const std::string& name);
// "eval/loss", "eval/loss/<dataset>"
Scalars scalars_of_evaluation(double loss, const std::vector<DatasetLoss>& datasets);

}  // namespace tessera::train
