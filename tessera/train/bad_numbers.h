// Where NaN and infinity come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// The first, in the model's order, of what is not finite, and a rank that holds it: "parameter 'x' holds
// values that are not finite, on rank 1"; else the first block whose output is not when these micro-batches
// run once more, else the output projection. The same on every rank. Collective over the world.
std::string first_bad_tensor(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                             const std::vector<data::MicroBatch>& micro_batches);

// Warns of parameters that hold NaN or infinity, with their numbers; with `is_refused` throws Error(Model,
// "NOT-FINITE") on every rank. Collective over the world.
void check_finite_weights(const TrainedModel& trained, comm::Communicator& world, bool is_refused);

}  // namespace tessera::train
