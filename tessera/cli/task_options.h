// The options of `tessera evaluate --tasks`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/adapters.h"
#include "tessera/cli/command_line.h"

namespace tessera::cli {

struct TaskRunOptions {
  std::vector<std::string> tasks;
  AdapterOptions adapters;
  std::string model, data, output;
  std::string baseline;                // results of another run, whose documents are compared with these
  std::vector<std::string> overrides;  // keys of the layout: tensor_parallel_size=2
  int64_t nproc = 0, batch_size = 8, bootstrap_iterations = 100'000;
  std::optional<int64_t> num_fewshot, max_length;  // nothing: those of the task and of the model
  std::optional<double> limit;                     // nothing: all documents
  uint64_t seed = 1234;
  bool applies_chat_template = false;
  std::string chat_template, system_instruction;
  std::optional<bool> is_multiturn;  // nothing: true with a chat template
  bool as_json = false, logs_samples = false, overwrites = false;
};

// Adds the options that only --tasks has.
void add_task_options(CLI::App& verb, CommandLine& line, TaskRunOptions& options);

}  // namespace tessera::cli
