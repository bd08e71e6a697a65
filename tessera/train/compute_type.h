// What `dtype: auto` means on this machine.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"

namespace tessera::train {

// The recipe with `dtype: auto` replaced: by bfloat16 if rank 0 multiplies matrices at least half as fast
// again in it, else by float32. Other recipes come back as they are. One line of log says which type it is,
// and why where that was chosen here. Collective, all ranks choose alike.
config::Recipe with_compute_type(config::Recipe recipe, comm::Communicator& world);

// "float32", "float64", "bfloat16", "auto"
std::string compute_name(config::ComputeType type);

}  // namespace tessera::train
