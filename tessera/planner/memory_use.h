// The memory of a rank, as a sum (performance.md 4.1). `tessera estimate` counts it exactly; this one is
// quick enough to judge each of thousands of choices.
#pragma once

#include "tessera/planner/choice.h"
#include "tessera/planner/cluster.h"
#include "tessera/planner/constants.h"
#include "tessera/planner/model_work.h"

namespace tessera::planner {

// Bytes of the rank that needs most.
struct MemoryUse {
  double weights = 0.0, gradients = 0.0, states = 0.0;  // kept all the time
  double gathered = 0.0, activations = 0.0, loss = 0.0;
  double program = 0.0;            // context, libraries and what the allocator cannot use
  double host = 0.0, drive = 0.0;  // states that lie in the host's memory or on its drive

  double device() const { return weights + gradients + states + gathered + activations + loss + program; }
};

MemoryUse memory_use(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& choice,
                     const Software& software = kTessera);

// Returns whether that memory is there: on the device, on the host and on its drive.
bool fits(const MemoryUse& use, const Cluster& cluster);

}  // namespace tessera::planner
