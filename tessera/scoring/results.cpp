#include "tessera/scoring/results.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tessera/config/scalar.h"
#include "tessera/core/sha256.h"
#include "tessera/scoring/markdown_table.h"

namespace tessera::scoring {
namespace {

using ByName = std::map<std::string, const Result*>;

// Returns the tasks of a group and of the groups in it.
std::vector<const Result*> leaves(const GroupConfig& group, const ByName& tasks,
                                  const std::vector<GroupConfig>& groups) {
  std::vector<const Result*> found;
  for (const std::string& name : group.members) {
    const auto inner = std::ranges::find(groups, name, &GroupConfig::name);
    if (inner != groups.end()) {
      const auto more = leaves(*inner, tasks, groups);
      found.insert(found.end(), more.begin(), more.end());
    } else if (tasks.contains(name)) {
      found.push_back(tasks.at(name));
    }
  }
  return found;
}

// Returns the score of a group: the mean, and the pooled standard error of
// https://en.wikipedia.org/wiki/Pooled_variance, or without weights that of the mean of independent values.
std::optional<Score> group_score(const std::string& metric, const std::string& filter, bool is_weighted,
                                 const std::vector<const Result*>& tasks) {
  double sum = 0.0, weights = 0.0, squares = 0.0, sizes = 0.0;
  int64_t count = 0;
  bool has_errors = true;
  for (const Result* task : tasks) {
    for (const Score& score : task->scores) {
      if (score.metric != metric || score.filter != filter) continue;
      const auto size = static_cast<double>(task->num_scored);
      const double weight = is_weighted ? size : 1.0;
      sum += score.value * weight;
      weights += weight;
      sizes += size;
      ++count;
      has_errors = has_errors && score.standard_error.has_value();
      const double square = std::pow(score.standard_error.value_or(0.0), 2.0);
      squares += is_weighted ? (size - 1.0) * square * size : square;
    }
  }
  if (count == 0) return std::nullopt;
  Score score{metric, filter, sum / weights, std::nullopt, static_cast<int64_t>(sizes)};
  const auto number = static_cast<double>(count);
  if (has_errors) {
    score.standard_error =
        is_weighted ? std::sqrt(squares / (sizes - number) / sizes) : std::sqrt(squares) / number;
  }
  return score;
}

Result group_result(const GroupConfig& group, const std::vector<const Result*>& tasks) {
  Result result;
  result.name = group.name;
  result.alias = group.alias;
  result.version = group.version;
  result.members = group.members;
  result.is_group = true;
  std::set<int64_t> shots;
  for (const Result* task : tasks) {
    result.num_scored += task->num_scored;
    shots.insert(task->num_fewshot.value_or(0));
    for (const auto& [metric, is_higher] : task->higher_is_better) {
      const auto known =
          std::ranges::find(result.higher_is_better, metric, [](const auto& pair) { return pair.first; });
      if (known == result.higher_is_better.end()) result.higher_is_better.emplace_back(metric, is_higher);
    }
  }
  if (shots.size() == 1) result.num_fewshot = *shots.begin();
  for (const GroupMetric& metric : group.metrics) {
    std::set<std::string> filters;
    for (const Result* task : tasks) {
      for (const Score& score : task->scores) {
        if (score.metric == metric.metric) filters.insert(score.filter);
      }
    }
    if (metric.filters) filters = {metric.filters->begin(), metric.filters->end()};
    for (const std::string& filter : filters) {
      if (auto score = group_score(metric.metric, filter, metric.weight_by_size, tasks))
        result.scores.push_back(std::move(*score));
    }
  }
  return result;
}

Json number_of(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string fixed(double value) { return formatted("%.4f", value); }

}  // namespace

Result result_of(const Task& task, const TaskScores& scores, int64_t iterations) {
  const TaskConfig& config = task.config();
  Result result;
  result.name = config.name;
  result.alias = config.alias;
  result.version = config.version;
  result.num_scored = task.num_scored();
  result.num_documents = task.num_documents();
  result.num_fewshot = task.num_fewshot();
  result.keys = config.keys;
  for (const MetricConfig& metric : config.metrics)
    result.higher_is_better.emplace_back(metric.name, metric.higher_is_better);
  for (const MetricScores& one : scores.metrics) {
    result.scores.push_back({one.metric, one.filter, aggregate(one.aggregation, one.values),
                             standard_error(one.aggregation, one.values, iterations), task.num_scored()});
  }
  return result;
}

std::vector<Result> with_groups(std::vector<Result> tasks, const std::vector<GroupConfig>& groups) {
  ByName by_name;
  for (const Result& task : tasks) by_name[task.name] = &task;
  std::vector<Result> all;
  std::set<std::string> shown;
  const std::function<void(const std::string&, int64_t)> add = [&](const std::string& name, int64_t depth) {
    if (!shown.insert(name).second) return;
    const auto group = std::ranges::find(groups, name, &GroupConfig::name);
    if (group == groups.end()) {
      all.push_back(*by_name.at(name));
      all.back().depth = depth;
      return;
    }
    all.push_back(group_result(*group, leaves(*group, by_name, groups)));
    all.back().depth = depth;
    for (const std::string& member : group->members) add(member, depth + 1);
  };
  for (const GroupConfig& group : groups) add(group.name, 0);
  for (const Result& task : tasks) add(task.name, 0);
  return all;
}

std::string table_of(const std::vector<Result>& results) {
  std::vector<TableColumn> columns = {{"Tasks"}, {"Version", true}, {"Filter"}, {"n-shot", true}, {"Metric"},
                                      {""},      {"Value", true},   {""},       {"Stderr", true}};
  for (const Result& result : results) {
    const std::string indent =
        result.depth == 0 ? "" : std::string(static_cast<size_t>(result.depth), ' ') + "- ";
    std::vector<Score> scores = result.scores;
    std::ranges::sort(scores, {}, [](const Score& score) { return score.metric + "," + score.filter; });
    std::string version = result.version;
    if (const auto number = config::parse_number(version)) {
      version = config::format_number(*number);
    } else {
      columns[1].is_right = false;
    }
    const std::string shots = result.num_fewshot ? std::to_string(*result.num_fewshot) : "";
    if (scores.empty()) scores.emplace_back();
    std::string name = indent + result.alias;
    for (const Score& score : scores) {
      const bool is_blank = score.metric.empty();
      const auto found = std::ranges::find(result.higher_is_better, score.metric,
                                           [](const auto& pair) { return pair.first; });
      const std::string arrow =
          is_blank || found == result.higher_is_better.end() ? "" : (found->second ? "↑" : "↓");
      const std::string error = is_blank ? "" : (score.standard_error ? fixed(*score.standard_error) : "N/A");
      const std::string row[] = {std::exchange(name, ""),
                                 std::exchange(version, ""),
                                 score.filter,
                                 shots,
                                 score.metric,
                                 arrow,
                                 is_blank ? "" : fixed(score.value),
                                 is_blank ? "" : "±",
                                 error};
      for (size_t i = 0; i < columns.size(); ++i) columns[i].cells.push_back(row[i]);
    }
  }
  return markdown_table(columns);
}

Json json_of(const std::vector<Result>& results) {
  Json json;
  for (const char* key : {"results", "groups", "group_subtasks", "configs", "versions", "n-shot",
                          "higher_is_better", "n-samples"})
    json[key] = Json::object();
  for (const Result& result : results) {
    Json scores = {{"name", result.name}, {"alias", result.alias}, {"sample_len", result.num_scored}};
    for (const Score& score : result.scores) {
      scores[score.metric + "," + score.filter] = number_of(score.value);
      scores[score.metric + "_stderr," + score.filter] =
          score.standard_error ? number_of(*score.standard_error) : Json("N/A");
    }
    if (result.is_group && !result.scores.empty()) {
      for (const Score& score : result.scores)
        scores["sample_count"][score.metric + "," + score.filter] = score.num_scored;
    }
    json["results"][result.name] = scores;
    if (result.is_group) {
      json["group_subtasks"][result.name] = result.members;
      if (!result.scores.empty()) json["groups"][result.name] = scores;
    } else {
      json["configs"][result.name] = result.keys;
      json["n-samples"][result.name] = {{"original", result.num_documents}, {"effective", result.num_scored}};
    }
    const auto version = config::parse_number(result.version);
    json["versions"][result.name] = version && !result.is_group ? Json(*version) : Json(result.version);
    if (result.num_fewshot) json["n-shot"][result.name] = *result.num_fewshot;
    for (const auto& [metric, is_higher] : result.higher_is_better)
      json["higher_is_better"][result.name][metric] = is_higher;
  }
  if (json["groups"].empty()) json.erase("groups");
  return json;
}

Json task_hashes(const Json& samples) {
  Json hashes = Json::object();
  for (const auto& [task, of_task] : samples.items()) {
    Sha256 hash;
    for (const Json& sample : of_task) {
      for (const char* key : {"doc_hash", "prompt_hash", "target_hash"})
        hash.add(sample[key].get_ref<const std::string&>());
    }
    hashes[task] = hash.hex();
  }
  return hashes;
}

}  // namespace tessera::scoring
