// Counts the starts of a batch job that goes back into its queue again and again.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::train {

// Counts this start, where Slurm has started a job anew (SLURM_RESTART_COUNT), in the file
// "<output_dir>.tessera-requeued". `step` is that of the checkpoint from which the run goes on, 0 without
// one. Throws on every rank: Error(Checkpoint, "CRASH-LOOP") where three such starts from that step have made
// no newer checkpoint, and Error(Storage). Starts of other jobs, and those by --max-restarts, do not count.
// Collective.
void count_requeued_start(const std::string& output_dir, int64_t step, comm::Communicator& world);

// Removes the count, for a run that is done. Not collective.
void forget_requeued_starts(const std::string& output_dir);

}  // namespace tessera::train
