// Names the numbers that trackers show, alike for all of them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/train/step/metrics.h"

namespace tessera::train {

using Scalars = std::vector<std::pair<std::string, double>>;

// Returns the numbers of a line as "train/loss", "train/learning_rate", "train/loss/<dataset>", ...
Scalars scalars_of(const StepMetrics& line);
// The parts of a scalar's name: "train/loss/chats" is "train/loss" of the dataset "chats", and
// "eval/arc_easy/acc" is "eval/acc" of the task "arc_easy".
struct ScalarLabel {
  const char* key;  // "dataset" or "task"
  std::string value;
};
struct ScalarName {
  std::string metric;
  std::optional<ScalarLabel> label;
};
ScalarName split_name(const std::string& name);
// Returns the numbers of an evaluation as "eval/loss", "eval/loss/<dataset>", "eval/accuracy",
// "eval/<task>/<metric>", ...
Scalars scalars_of_evaluation(const Evaluated& evaluated);

}  // namespace tessera::train
