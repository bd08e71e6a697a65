// Runs `tessera train`: a recipe from start to the folder that it leaves.
#pragma once

#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/train/run/run_signals.h"

namespace tessera::train {

struct TrainSummary {
  int64_t steps = 0;  // of the run so far, also those before it went on
  double first_loss = 0.0, last_loss = 0.0;
  double seconds = 0.0;  // of this start
  int64_t tokens = 0;    // of all steps, over all ranks
  std::string output_dir;
  // The run was asked to stop before its last step, and the checkpoint of the step above is saved.
  bool is_stopped = false;
};

// Runs the recipe on all ranks of `world` and leaves output_dir with metrics.jsonl, runs/ (TensorBoard),
// recipe.yaml (as resolved) and the trained model or adapter, put in place as a whole (io/result_folder.h),
// and uploads it where the recipe names a repository of the hub. Rank 0 reports on standard error.
// Collective. Throws every kind of Error; an older result is then untouched, and the logs of a run that has
// made steps stay in its staging folder.
//
// Between two steps it does what any rank is asked for: to save (SIGUSR1, or the trigger file
// "<output_dir>.tessera-save") or, where the recipe saves checkpoints at all, to save and stop (see
// RunSignals).
TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world,
                   RunSignals& signals);
// Runs the recipe with signals of its own.
TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world);

}  // namespace tessera::train
