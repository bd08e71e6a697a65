#include "tessera/scoring/paired.h"

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/scoring/markdown_table.h"
#include "tessera/scoring/metrics.h"

namespace tessera::scoring {
namespace {

Error problem(const std::string& what) {
  return Error(ErrorKind::Config, "BASELINE", what)
      .hint("write results to compare by --log_samples and --output");
}

// Returns the score of a sample; nothing if it has none of this metric.
std::optional<double> score_of(const Json& sample, const std::string& metric) {
  const auto found = sample.find(metric);
  if (found == sample.end() || is_metric_of_classes(metric)) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  if (found->is_array() && !found->empty() && found->front().is_number()) return found->front().get<double>();
  return std::nullopt;
}

// Identifies one score of a task: its filter and its metric.
using ScoreName = std::pair<std::string, std::string>;
struct Scored {
  double value = 0.0;
  const Json* document = nullptr;
};
struct TaskSamples {
  std::vector<ScoreName> names;  // in the order of the file
  std::map<ScoreName, std::map<int64_t, Scored>> scores;
};

TaskSamples read_samples(const std::string& task, const Json& samples) {
  if (!samples.is_array()) throw problem("the samples of task '" + task + "' are no list");
  TaskSamples read;
  for (const Json& sample : samples) {
    if (!sample.is_object() || !sample.contains("doc_id") || !sample["doc_id"].is_number_integer() ||
        !sample.contains("doc") || !sample.contains("metrics") || !sample["metrics"].is_array())
      throw problem("a sample of task '" + task + "' has no doc_id, doc or metrics");
    const std::string filter = sample.value("filter", "none");
    for (const Json& metric : sample["metrics"]) {
      if (!metric.is_string()) throw problem("a sample of task '" + task + "' has a metric without a name");
      const ScoreName name{filter, metric.get<std::string>()};
      const auto value = score_of(sample, name.second);
      if (!value) continue;
      if (!read.scores.contains(name)) read.names.push_back(name);
      read.scores[name][sample["doc_id"].get<int64_t>()] = {*value, &sample["doc"]};
    }
  }
  return read;
}

PairedDifference compare(const std::string& task, const std::map<int64_t, Scored>& first,
                         const std::map<int64_t, Scored>& second) {
  PairedDifference result;
  std::vector<double> differences;
  for (const auto& [id, one] : first) {
    const auto other = second.find(id);
    if (other == second.end()) continue;
    if (*one.document != *other->second.document)
      throw problem("document " + std::to_string(id) + " of task '" + task + "' differs in the two results");
    const double difference = one.value - other->second.value;
    differences.push_back(difference);
    result.first += one.value;
    result.second += other->second.value;
    result.num_higher += difference > 0.0 ? 1 : 0;
    result.num_lower += difference < 0.0 ? 1 : 0;
  }
  result.num_documents = std::ssize(differences);
  if (differences.empty()) return result;
  const auto count = static_cast<double>(result.num_documents);
  result.first /= count;
  result.second /= count;
  for (const double difference : differences) result.difference += difference / count;
  if (result.num_documents < 2) return result;
  double squares = 0.0;
  for (const double difference : differences) squares += std::pow(difference - result.difference, 2.0);
  result.standard_error = std::sqrt(squares / (count - 1.0) / count);
  if (result.standard_error > 0.0) {
    result.p_value = std::erfc(std::abs(result.difference) / result.standard_error / std::sqrt(2.0));
  } else if (result.difference != 0.0) {
    result.p_value = 0.0;
  }
  return result;
}

}  // namespace

std::vector<PairedDifference> paired_differences(const Json& first, const Json& second) {
  if (!first.is_object() || !second.is_object()) throw problem("the results have no samples");
  std::vector<PairedDifference> differences;
  for (const auto& [task, samples] : first.items()) {
    if (!second.contains(task)) continue;
    const TaskSamples own = read_samples(task, samples), other = read_samples(task, second[task]);
    for (const ScoreName& name : own.names) {
      const auto found = other.scores.find(name);
      if (found == other.scores.end()) continue;
      PairedDifference difference = compare(task, own.scores.at(name), found->second);
      if (difference.num_documents == 0) continue;
      difference.task = task;
      difference.filter = name.first;
      difference.metric = name.second;
      differences.push_back(std::move(difference));
    }
  }
  if (differences.empty()) throw problem("the two results have no document and metric in common");
  return differences;
}

std::string table_of(const std::vector<PairedDifference>& differences) {
  std::vector<TableColumn> columns = {{"Tasks"}, {"Metric"}, {"Filter"}};
  for (const char* title : {"documents", "value", "baseline", "difference", "95 %", "p", "higher", "lower"})
    columns.push_back({title, /*is_right=*/true});
  for (const PairedDifference& one : differences) {
    const std::string row[] = {one.task,
                               one.metric,
                               one.filter,
                               group_digits(one.num_documents),
                               formatted("%.4f", one.first),
                               formatted("%.4f", one.second),
                               formatted("%+.4f", one.difference),
                               formatted("± %7.4f", one.interval()),
                               formatted("%.2g", one.p_value),
                               group_digits(one.num_higher),
                               group_digits(one.num_lower)};
    for (size_t i = 0; i < columns.size(); ++i) columns[i].cells.push_back(row[i]);
  }
  return markdown_table(columns);
}

Json json_of(const std::vector<PairedDifference>& differences) {
  Json list = Json::array();
  for (const PairedDifference& one : differences) {
    list.push_back({{"task", one.task},
                    {"metric", one.metric},
                    {"filter", one.filter},
                    {"documents", one.num_documents},
                    {"value", one.first},
                    {"baseline", one.second},
                    {"difference", one.difference},
                    {"difference_stderr", one.standard_error},
                    {"interval_95", one.interval()},
                    {"p_value", one.p_value},
                    {"higher", one.num_higher},
                    {"lower", one.num_lower}});
  }
  return list;
}

}  // namespace tessera::scoring
