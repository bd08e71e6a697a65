// Measures how fast this machine's processor updates parameters.
#pragma once

#include "tessera/config/recipe.h"
#include "tessera/planner/model_work.h"

namespace tessera::train {

// Returns the seconds that this process takes to update one parameter of the model's largest kind of matrix
// with the recipe's optimizer, by updates of a sample of random numbers; 0 for AdamW with states and weights
// in float32, which memory bounds alone. Takes less than half a second.
double seconds_of_update(const config::Recipe& recipe, const planner::ModelWork& work);

}  // namespace tessera::train
