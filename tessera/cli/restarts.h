// `--max-restarts K`: a job that is started again from its newest checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/cli/launch.h"
#include "tessera/config/recipe.h"

namespace tessera::cli {

// Runs a job by `start`, which takes the keys that a restart adds to the command line, and gives its end or
// throws as launch() does. After an end that may not come again, a lost rank, a hang, a full disk, it starts
// the job again, at most `max_restarts` times, from the newest checkpoint that the job has made, or from
// where it was started. It does not after an end that will come again (recipe, data, files, checkpoint,
// numerics: exit codes 2 to 5 and 7), nor after one that was asked for. Says one line for each restart. Gives
// the last end's exit code, or throws what it threw. Throws Error(Config) where the recipe saves no
// checkpoints, and Error(Checkpoint, "CRASH-LOOP") where three starts in a row from one checkpoint made none.
int run_with_restarts(const config::Recipe& recipe, int64_t max_restarts,
                      const std::function<JobEnd(const std::vector<std::string>& more_keys)>& start);

}  // namespace tessera::cli
