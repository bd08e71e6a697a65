// How far a run was at each step, other than by its steps.
#pragma once

#include "tessera/report/run_record.h"

namespace tessera::report {

// Both ascend in step and value; one is empty if no line of the run's metrics has it.
struct RunClock {
  Points tokens;  // seen up to the step
  // They count the steps up to this one and their waits for checkpoints, but neither evaluations nor the
  // start of the run, of which the metrics tell nothing.
  Points seconds;
};

RunClock clock_of(const RunRecord& run);

}  // namespace tessera::report
