// What a recipe says of the steps of a run: their learning rates, and which are followed by an evaluation.
#pragma once

#include <cstdint>

#include "tessera/config/recipe.h"
#include "tessera/optim/plateau.h"
#include "tessera/optim/schedule.h"

namespace tessera::train {

// Of a key that is a number of steps, or below 1 a share of the run's, rounded up: the number.
int64_t count_steps(double steps_or_share, int64_t total_steps);

// learning_rate by the recipe's lr_scaling for steps of so many sequences: times the ratio to base_batch_size
// (Goyal et al., "Accurate, Large Minibatch SGD", 2017) or times its square root.
double peak_learning_rate(const config::Recipe& recipe, int64_t samples_per_step);

// The peak is peak_learning_rate(). Warm-up by warmup_steps or warmup_ratio (rounded down), else 3 % of the
// steps, at most 100; one step of it becomes two, as in Axolotl: the first has learning rate 0. One that the
// run does not end is not cut, so that a short run sees the first learning rates of a long one; a note tells
// that the peak is never reached.
optim::Schedule make_schedule(const config::Recipe& recipe, int64_t total_steps, int64_t samples_per_step);

// Of reduce_lr_on_plateau.
optim::PlateauOptions plateau_options(const config::Recipe& recipe);

// Whether a checkpoint is saved after `step` (1-based), whatever its evaluation says; the last step's always
// is, where any is.
bool is_saved(const config::Recipe& recipe, int64_t step, int64_t total_steps, int64_t steps_per_epoch,
              bool ends_epoch);

// Whether the evaluation data are looked at after `step` (1-based); `ends_epoch`: it is the last of an epoch.
bool is_evaluated(const config::Recipe& recipe, int64_t step, int64_t total_steps, int64_t steps_per_epoch,
                  bool ends_epoch);

}  // namespace tessera::train
