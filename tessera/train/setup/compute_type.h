// Finds the dtype that `dtype: auto` means on this machine.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"

namespace tessera::train {

// Returns the recipe with `dtype: auto` replaced: by bfloat16 if rank 0 multiplies matrices in it at least
// 1.5 times as fast as in float32, else by float32. Other recipes come back as they are. A line of log says
// which dtype it is, and why where it was chosen here; a warning says where a dtype is slow on the device.
// Collective; all ranks choose alike.
config::Recipe with_compute_type(config::Recipe recipe, comm::Communicator& world);

// Returns "float32", "float64", "bfloat16", "float16" or "auto".
std::string compute_name(config::ComputeType type);

}  // namespace tessera::train
