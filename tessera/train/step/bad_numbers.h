// Finds where NaN and infinity come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

// Names the first parameter, in the model's order, that holds a value that is not finite, and a rank that
// holds it: "parameter 'x' holds values that are not finite, on rank 1". Where all parameters are finite it
// runs these micro-batches once more and names the first block whose output is not finite, else the output
// projection. The text is the same on every rank. Collective over the world.
std::string first_bad_tensor(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                             const std::vector<data::MicroBatch>& micro_batches);

// Warns of parameters that hold NaN or infinity, with the number of such values. With `is_refused` it throws
// Error(Model, "NOT-FINITE") on every rank instead. Collective over the world.
void check_finite_weights(const TrainedModel& trained, comm::Communicator& world, bool is_refused);

}  // namespace tessera::train
