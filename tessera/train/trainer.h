// `tessera train`: a recipe from start to the folder that it leaves.
#pragma once

#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"

namespace tessera::train {

struct TrainSummary {
  int64_t steps = 0;
  double first_loss = 0.0, last_loss = 0.0;
  double seconds = 0.0;
  int64_t tokens = 0;
  std::string output_dir;
};

// Runs the recipe on all ranks of `world` and leaves output_dir with metrics.jsonl, runs/ (TensorBoard),
// recipe.yaml (as resolved) and the trained model or adapter. Rank 0 reports on standard error. Collective.
// Throws every kind of Error; the folder then holds the metrics so far and no model.
TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world);

}  // namespace tessera::train
