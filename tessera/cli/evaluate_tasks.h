// `tessera evaluate MODEL --tasks ...`: scores of tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/command_line.h"

namespace tessera::cli {

struct TaskRunOptions {
  std::vector<std::string> tasks;
  std::string model, adapter, data, output;
  std::vector<std::string> overrides;  // keys of the layout: tensor_parallel_size=2
  int64_t nproc = 0, num_fewshot = -1, batch_size = 8, max_length = 0, bootstrap_iterations = 100'000;
  double limit = 0.0;
  uint64_t seed = 1234;
  bool as_json = false, logs_samples = false, overwrites = false;
};

// Adds the options that only --tasks has.
void add_task_options(CLI::App& verb, CommandLine& line, TaskRunOptions& options);
// Scores the tasks and prints or writes their results. Collective under a launcher.
int evaluate_tasks(TaskRunOptions options, const CommandLine& line);

}  // namespace tessera::cli
