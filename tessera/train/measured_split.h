// The stages of a pipeline by measured time (`pipeline_split_by: time`).
#pragma once

#include "tessera/config/recipe.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// Where the recipe asks for it: measures the parts of the planned model on every rank, takes the mean, and
// deals the layers so that the slowest stage is as fast as can be: the same on all ranks, which the first one
// tells. Puts the split into the plan and, as a pipeline_split, into the recipe. Collective.
void measure_split(config::Recipe& recipe, PlannedModel& planned, comm::Communicator& world);

}  // namespace tessera::train
