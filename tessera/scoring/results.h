// The results of an evaluation: scores of tasks and groups, as a table and as lm-evaluation-harness' JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/scoring/task.h"
#include "tessera/scoring/task_files.h"

namespace tessera::scoring {

struct Score {
  std::string metric, filter;
  double value = 0.0;
  std::optional<double> standard_error;
  int64_t num_scored = 0;  // documents
};

// The scores of a task or of a group.
struct Result {
  std::string name, alias, version;
  std::vector<Score> scores;
  int64_t num_scored = 0, num_documents = 0;
  std::optional<int64_t> num_fewshot;                          // nothing for a group whose tasks differ
  std::vector<std::pair<std::string, bool>> higher_is_better;  // by metric
  std::vector<std::string> members;                            // of a group
  bool is_group = false;
  int64_t depth = 0;  // groups around it
  Json keys;          // of the task file
};

// Returns the result of one task. `iterations` is that of standard_error().
Result result_of(const Task& task, const TaskScores& scores, int64_t iterations = kBootstrapIterations);

// Returns the results of all tasks and groups in the order of the table: a group, then what is in it. The
// score of a group is the mean of its tasks, weighted by their documents or not.
std::vector<Result> with_groups(std::vector<Result> tasks, const std::vector<GroupConfig>& groups);

// Returns the table as Markdown, one line a score.
std::string table_of(const std::vector<Result>& results);

// Returns the keys of the harness' results file that tell of scores: results, groups, group_subtasks,
// configs, versions, n-shot, higher_is_better and n-samples.
Json json_of(const std::vector<Result>& results);

// Returns the harness' task_hashes of samples by task: a hash of their documents, prompts and targets.
Json task_hashes(const Json& samples);

}  // namespace tessera::scoring
