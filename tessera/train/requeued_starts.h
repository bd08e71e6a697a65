// The starts of a batch job that goes back into its queue again and again.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::train {

// Counts this start where it is one that Slurm has made of a job anew (SLURM_RESTART_COUNT), in the file
// "<output_dir>.tessera-requeued". `step`: that of the checkpoint which the run goes on from, 0 without one.
// Throws on every rank Error(Checkpoint, "CRASH-LOOP") where three such starts from there have made no newer
// checkpoint, and Error(Storage). Starts of other jobs, and those by --max-restarts, do not count.
// Collective.
void count_requeued_start(const std::string& output_dir, int64_t step, comm::Communicator& world);

// Of a run that is done.
void forget_requeued_starts(const std::string& output_dir);

}  // namespace tessera::train
