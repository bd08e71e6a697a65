// The numbers that trackers show, under the names that all of them use.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/train/metrics.h"

namespace tessera::train {

using Scalars = std::vector<std::pair<std::string, double>>;

// "train/loss", "train/learning_rate", "train/loss/<dataset>", ...
Scalars scalars_of(const StepMetrics& line);
// "eval/loss", "eval/loss/<dataset>"
Scalars scalars_of_evaluation(double loss, const std::vector<DatasetLoss>& datasets);

}  // namespace tessera::train
