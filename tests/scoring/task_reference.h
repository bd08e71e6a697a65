// The task files of tests/reference/data/tasks, and what lm-evaluation-harness makes of them
// (reference.json).
#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/scoring/results.h"
#include "tessera/scoring/task.h"
#include "tessera/scoring/task_files.h"

#include "tests/testing/paths.h"

namespace tessera::scoring {

inline std::string task_folder() { return testing::source_folder() + "/tests/reference/data/tasks/"; }

inline Json read_reference(const std::string& name) {
  return Json::parse(std::ifstream(task_folder() + name));
}

// All tasks of the reference, with their requests.
struct ReferenceTasks {
  TaskSelection selection =
      select_tasks({task_folder() + "all.yaml", task_folder() + "endings.yaml", task_folder() + "pages.yaml",
                    task_folder() + "sums.yaml", task_folder() + "sums_any.yaml"});
  std::vector<std::unique_ptr<Task>> tasks;

  ReferenceTasks() {
    for (const TaskConfig& config : selection.tasks)
      tasks.push_back(std::make_unique<Task>(config, TaskOptions()));
  }
};

// Returns the response that the harness' model gave to a request, from "resps" of a sample.
inline Response response_of(const Json& logged) {
  if (logged.is_string()) return {0.0, false, logged.get<std::string>()};
  if (logged.is_number()) return {logged.get<double>(), false, ""};
  return {logged[0].get<double>(), logged[1].get<bool>(), ""};
}

// Returns the samples of a task's first filter: one for each document.
inline std::vector<Json> documents_of(const Json& reference, const std::string& task) {
  std::vector<Json> documents;
  const Json& samples = reference["samples"][task];
  for (const Json& sample : samples) {
    if (sample["filter"] == samples[0]["filter"]) documents.push_back(sample);
  }
  return documents;
}

}  // namespace tessera::scoring
