// Implements `--max-restarts K`: a job that fails is started again from its newest checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/cli/launch.h"
#include "tessera/config/recipe.h"

namespace tessera::cli {

// Runs a job by calling `start` with the keys that a restart adds to the command line; `start` returns the
// job's end, or throws as launch() does. After an end that may not come again (a lost rank, a hang, a full
// disk) starts the job again, at most `max_restarts` times, from the newest checkpoint that the job has made,
// or from where it was started. Does not restart after an end that will come again (recipe, data, files,
// checkpoint, numerics: exit codes 2 to 5 and 7) or that was asked for. Logs one line for each restart.
// Returns the exit code of the last end, or throws what the last `start` threw. Throws Error(Config) if the
// recipe saves no checkpoints, and Error(Checkpoint, "CRASH-LOOP") if three starts in a row from one
// checkpoint made no newer one.
int run_with_restarts(const config::Recipe& recipe, int64_t max_restarts,
                      const std::function<JobEnd(const std::vector<std::string>& more_keys)>& start);

}  // namespace tessera::cli
