// Reads from a recipe what it says of the steps of a run: their learning rates, and after which of them a
// checkpoint is saved or the evaluation data are looked at.
#pragma once

#include <cstdint>

#include "tessera/config/recipe.h"
#include "tessera/optim/plateau.h"
#include "tessera/optim/schedule.h"

namespace tessera::train {

// Returns the number of steps that a key means: `steps_or_share` itself from 1 on, and below 1 that share of
// `total_steps`, rounded up.
int64_t count_steps(double steps_or_share, int64_t total_steps);

// Returns learning_rate as the recipe's lr_scaling has it for steps of `samples_per_step` sequences: times
// the ratio to base_batch_size (Goyal et al., "Accurate, Large Minibatch SGD", 2017) or times its square
// root.
double peak_learning_rate(const config::ScheduleConfig& keys, int64_t samples_per_step);

// Makes the schedule, whose peak is peak_learning_rate(). The warm-up is warmup_steps or warmup_ratio
// (rounded down), else 3 % of the steps, at most 100. A warm-up of one step becomes one of two, as in
// Axolotl: the first step has learning rate 0. A warm-up that the run does not end is not cut, so that a
// short run sees the first learning rates of a long one; a warning says that the peak is never reached.
optim::Schedule make_schedule(const config::ScheduleConfig& keys, int64_t total_steps,
                              int64_t samples_per_step);

// Returns the options of the scheduler reduce_lr_on_plateau.
optim::PlateauOptions plateau_options(const config::ScheduleConfig& keys);

// Tells whether a checkpoint is saved after `step` (1-based), whatever its evaluation says. After the last
// step one is always saved, where any is. `ends_epoch`: the step is the last of an epoch.
bool is_saved(const config::CheckpointConfig& keys, int64_t step, int64_t total_steps,
              int64_t steps_per_epoch, bool ends_epoch);

// Tells whether the evaluation data are looked at after `step` (1-based). `ends_epoch` as above.
bool is_evaluated(const config::EvaluationConfig& keys, int64_t step, int64_t total_steps,
                  int64_t steps_per_epoch, bool ends_epoch);

}  // namespace tessera::train
