// Tells at the start of a run how much memory it will take, and refuses one that cannot fit.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"

namespace tessera::train {

// Estimates (estimate.h) the memory of the rank that needs most and logs it. Warns where the ranks of this
// machine would need more than it has when every micro-batch is full, and names the smallest change of the
// recipe that would make it fit. Throws Error(Memory, "CANNOT-FIT") with that hint where the weights and the
// optimizer's states alone are too large for this machine, or this rank's for its device. Returns the peak of
// a rank in bytes; nothing if it is not known, for a run that cannot be estimated. Collective.
std::optional<int64_t> expect_memory(const config::Recipe& recipe, comm::Communicator& world);

}  // namespace tessera::train
