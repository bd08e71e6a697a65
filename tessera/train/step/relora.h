// ReLoRA (Lialin et al., arXiv 2307.05695): an adapter that is added to its base from time to time and begins
// anew, so that the sum of all its products is of a higher rank than each.
#pragma once

#include <cstdint>

#include "tessera/config/recipe.h"
#include "tessera/optim/optimizer.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

// Returns whether a restart comes before the step behind `steps` others: a multiple of jagged_restart_steps,
// but 0.
bool restarts_after(const config::Recipe& recipe, int64_t steps);

// Adds the product of each layer's factors to the layer's weight, rounded once to the type in which the
// weight is kept, and sets B to zero. The model then computes what it did, and its weights alone are the
// result of the run. Collective.
void fold_adapter(const TrainedModel& trained);

// Folds the adapter, draws new values for A, which are a function of the seed, `steps`, and the names and
// places of the elements, and sets to zero the share relora_prune_ratio of each of the factors' optimizer
// states with the smallest magnitudes, and the first moments of elements whose second one became zero. The
// number of updates, by which Adam corrects its moments, goes on. Collective.
void restart_adapter(const config::Recipe& recipe, const TrainedModel& trained, optim::Optimizer& optimizer,
                     int64_t steps);

}  // namespace tessera::train
