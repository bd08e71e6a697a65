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
// recipe.yaml (as resolved) and the trained model or adapter, put in place as a whole (io/result_folder.h).
// Rank 0 reports on standard error. Collective. Throws every kind of Error; an older result is then
// untouched, and the logs of a run that has made steps stay in its staging folder.
TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world);

}  // namespace tessera::train
