// Tells at the start of a run how much memory it will take, and refuses one that cannot fit.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"

namespace tessera::train {

// Returns the recipe with the fewest changes by which its run keeps host_memory_limit, and logs them: they
// cost time and change no loss (activations that are recomputed, smaller micro-batches, updates in the
// backward, optimizer states on the drive of output_dir). A recipe without that key, one that fits, and one
// that no such change makes fit (expect_memory() refuses it) stay as they are. Throws Error(Config) for a run
// on a GPU. Collective.
config::Recipe within_host_memory(config::Recipe recipe, comm::Communicator& world);

// Estimates (estimate.h) the memory of the rank that needs most and logs it. Warns where the ranks of this
// machine would need more than it has when every micro-batch is full, and names the smallest change of the
// recipe that would make it fit. Throws Error(Memory, "CANNOT-FIT") with that hint where the weights and the
// optimizer's states alone are too large for this machine, or this rank's for its device, and for a run that
// does not keep its host_memory_limit. Returns the peak of
// a rank in bytes; nothing if it is not known, for a run that cannot be estimated. Collective.
std::optional<int64_t> expect_memory(const config::Recipe& recipe, comm::Communicator& world);

}  // namespace tessera::train
