// `tessera evaluate MODEL --tasks ...`: scores of tasks.
#pragma once

#include "tessera/cli/command_line.h"
#include "tessera/cli/task_options.h"

namespace tessera::cli {

// Scores the tasks and prints or writes their results. Adapters with names are scored one after the other, on
// a model that is loaded once. Collective under a launcher.
int evaluate_tasks(TaskRunOptions options, const CommandLine& line);

}  // namespace tessera::cli
