// The stages of a pipeline by measured time (`pipeline_split_by: time`).
#pragma once

#include "tessera/config/recipe.h"
#include "tessera/train/setup/plan_model.h"

namespace tessera::train {

// Does nothing unless the recipe asks for it. Measures the parts of the planned model on every rank, takes
// the mean, and deals the layers so that the rank with the most work has as little as possible; all ranks
// come to the same split, which a line of log tells. Puts the split into the plan and, as pipeline_split,
// into the recipe. Collective.
void measure_split(config::Recipe& recipe, PlannedModel& planned, comm::Communicator& world);

}  // namespace tessera::train
