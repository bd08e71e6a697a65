// The metrics of tasks: which there are, how the values of documents become one, and its standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/scoring/task_config.h"

namespace tessera::scoring {

// Returns the metric with its usual aggregation; an empty aggregation if there is no metric of this name.
MetricConfig default_metric(const std::string& name);
bool is_metric_of(std::string_view name, OutputType type);
// Tells whether the values of a metric are pairs of classes (f1, mcc), of which no document has a score of
// its own.
bool is_metric_of_classes(std::string_view name);
std::vector<std::string> metric_names(OutputType type);
// Returns the metrics of a task that names none.
std::vector<std::string> default_metrics(OutputType type);
// Returns the keys that an entry of metric_list may have.
std::vector<std::string> metric_keys(std::string_view name);

bool is_aggregation(std::string_view name);
std::vector<std::string> aggregation_names();

// The value of one document. Its weight counts for aggregations that weigh, by words or bytes; of f1 and mcc
// the value is the chosen class, and the weight the right one. Metrics of text add up counts
// (text_metrics.h), and the value is the score of this document alone.
struct MetricValue {
  double value = 0.0, weight = 1.0;
  std::vector<double> counts = {};
};

// Returns the value of all documents, of which there is at least one.
double aggregate(std::string_view aggregation, std::span<const MetricValue> values);

constexpr int64_t kBootstrapIterations = 100'000;

// Returns the standard error of aggregate(), as lm-evaluation-harness computes it: of a mean the sample
// standard deviation over the root of the count; of a median, a nanmean or a perplexity the standard
// deviation of `iterations` resamples (of metrics of text at most 100), drawn in blocks of 1000 by
// PythonRandom(block); so do f1, matthews_corrcoef, bleu, chrf, chrf++ and ter. Returns nothing for
// other aggregations, for one document, and without iterations.
std::optional<double> standard_error(std::string_view aggregation, std::span<const MetricValue> values,
                                     int64_t iterations = kBootstrapIterations);

}  // namespace tessera::scoring
