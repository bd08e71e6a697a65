#include "tessera/scoring/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "tessera/core/classification.h"
#include "tessera/core/error.h"
#include "tessera/scoring/edit_rate.h"
#include "tessera/scoring/python_random.h"
#include "tessera/scoring/text_metrics.h"

namespace tessera::scoring {
namespace {

struct KnownMetric {
  std::string_view name, aggregation;
  bool higher_is_better;
  std::vector<OutputType> types;
};

const std::vector<KnownMetric>& known_metrics() {
  using enum OutputType;
  static const std::vector<KnownMetric> kMetrics = {
      {"acc", "mean", true, {MultipleChoice, LogLikelihood}},
      {"acc_norm", "mean", true, {MultipleChoice}},
      {"acc_bytes", "mean", true, {MultipleChoice}},
      {"acc_mutual_info", "mean", true, {MultipleChoice}},
      {"brier_score", "brier_score", false, {MultipleChoice}},
      {"exact_match", "mean", true, {MultipleChoice, GenerateUntil}},
      {"f1", "f1", true, {MultipleChoice}},
      {"mcc", "matthews_corrcoef", true, {MultipleChoice}},
      {"bleu", "bleu", true, {GenerateUntil}},
      {"chrf", "chrf", true, {GenerateUntil}},
      {"chrf++", "chrf++", true, {GenerateUntil}},
      {"ter", "ter", false, {GenerateUntil}},
      {"perplexity", "perplexity", false, {LogLikelihood}},
      {"word_perplexity", "weighted_perplexity", false, {Rolling}},
      {"byte_perplexity", "weighted_perplexity", false, {Rolling}},
      {"bits_per_byte", "bits_per_byte", false, {Rolling}},
  };
  return kMetrics;
}

using Values = std::span<const MetricValue* const>;

double mean(Values values) {
  double sum = 0.0;
  for (const MetricValue* one : values) sum += one->value;
  return sum / static_cast<double>(values.size());
}

double weighted_mean(Values values) {
  double sum = 0.0, weights = 0.0;
  for (const MetricValue* one : values) {
    sum += one->value;
    weights += one->weight;
  }
  return sum / weights;
}

double median(Values values) {
  std::vector<const MetricValue*> sorted(values.begin(), values.end());
  std::ranges::stable_sort(sorted, {}, &MetricValue::value);
  return sorted[sorted.size() / 2]->value;
}

double nanmean(Values values) {
  std::vector<const MetricValue*> numbers;
  std::ranges::copy_if(values, std::back_inserter(numbers),
                       [](const MetricValue* one) { return !std::isnan(one->value); });
  return numbers.empty() ? std::numeric_limits<double>::quiet_NaN() : mean(numbers);
}

double perplexity(Values values) { return std::exp(-mean(values)); }
double weighted_perplexity(Values values) { return std::exp(-weighted_mean(values)); }
double bits_per_byte(Values values) { return -weighted_mean(values) / std::numbers::ln2; }

// Returns a metric of class_metrics() over pairs of classes.
double class_metric(Values values, std::string_view name) {
  int64_t classes = 2;
  for (const MetricValue* one : values)
    classes = std::max(classes, 1 + static_cast<int64_t>(std::max(one->value, one->weight)));
  std::vector<double> confusion(static_cast<size_t>(classes * classes));
  for (const MetricValue* one : values)
    confusion[static_cast<size_t>(static_cast<int64_t>(one->weight) * classes +
                                  static_cast<int64_t>(one->value))] += 1.0;
  for (const auto& [metric, value] : class_metrics({.labels = default_labels(classes)}, confusion)) {
    if (metric == name) return value;
  }
  return 0.0;
}
double f1(Values values) { return class_metric(values, "f1"); }
double matthews(Values values) { return class_metric(values, "matthews_correlation"); }

std::vector<double> sum_of_counts(Values values) {
  std::vector<double> sums = values.front()->counts;
  for (const MetricValue* one : values.subspan(1))
    std::ranges::transform(sums, one->counts, sums.begin(), std::plus<>());
  return sums;
}
double bleu(Values values) { return bleu_score(sum_of_counts(values)); }
double chrf(Values values) { return chrf_score(sum_of_counts(values)); }
double ter(Values values) { return ter_score(sum_of_counts(values)); }

struct Aggregation {
  std::string_view name;
  double (*of)(Values);
  int64_t most_resamples;  // 0 for one that is not bootstrapped
};
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
constexpr std::array<Aggregation, 13> kAggregations = {{{"mean", mean, 0},
                                                        {"median", median, kAll},
                                                        {"nanmean", nanmean, kAll},
                                                        {"perplexity", perplexity, kAll},
                                                        {"weighted_perplexity", weighted_perplexity, 0},
                                                        {"bits_per_byte", bits_per_byte, 0},
                                                        {"brier_score", mean, 0},
                                                        {"f1", f1, kAll},
                                                        {"matthews_corrcoef", matthews, kAll},
                                                        {"bleu", bleu, 100},
                                                        {"chrf", chrf, 100},
                                                        {"chrf++", chrf, 100},
                                                        {"ter", ter, 100}}};

const Aggregation* find_aggregation(std::string_view name) {
  const auto found = std::ranges::find(kAggregations, name, &Aggregation::name);
  return found == kAggregations.end() ? nullptr : &*found;
}

double sample_deviation(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  double center = 0.0, sum = 0.0;
  for (const double one : values) center += one;
  center /= count;
  for (const double one : values) sum += (one - center) * (one - center);
  return std::sqrt(sum / (count - 1.0));
}

double bootstrap(const Aggregation& aggregation, std::span<const MetricValue> values, int64_t iterations) {
  iterations = std::min(iterations, aggregation.most_resamples);
  const int64_t block = std::min<int64_t>(1000, iterations);
  std::vector<double> results;
  std::vector<const MetricValue*> drawn(values.size());
  const auto count = static_cast<double>(values.size());
  for (int64_t i = 0; i < iterations / block; ++i) {
    PythonRandom random(static_cast<uint64_t>(i));
    for (int64_t k = 0; k < block; ++k) {
      for (const MetricValue*& one : drawn) one = &values[static_cast<size_t>(random.real() * count)];
      results.push_back(aggregation.of(drawn));
    }
  }
  return sample_deviation(results);
}

std::vector<const MetricValue*> pointers_to(std::span<const MetricValue> values) {
  std::vector<const MetricValue*> pointers;
  for (const MetricValue& one : values) pointers.push_back(&one);
  return pointers;
}

}  // namespace

MetricConfig default_metric(const std::string& name) {
  for (const KnownMetric& metric : known_metrics()) {
    if (metric.name == name) return {name, std::string(metric.aggregation), metric.higher_is_better};
  }
  return {name, "", true};
}

bool is_metric_of(std::string_view name, OutputType type) {
  return std::ranges::any_of(known_metrics(), [&](const KnownMetric& metric) {
    return metric.name == name && std::ranges::find(metric.types, type) != metric.types.end();
  });
}

bool is_metric_of_classes(std::string_view name) { return name == "f1" || name == "mcc"; }

std::vector<std::string> metric_names(OutputType type) {
  std::vector<std::string> names;
  for (const KnownMetric& metric : known_metrics()) {
    if (is_metric_of(metric.name, type)) names.emplace_back(metric.name);
  }
  return names;
}

std::vector<std::string> default_metrics(OutputType type) {
  switch (type) {
    case OutputType::MultipleChoice: return {"acc", "acc_norm"};
    case OutputType::LogLikelihood: return {"perplexity", "acc"};
    case OutputType::Rolling: return {"word_perplexity", "byte_perplexity", "bits_per_byte"};
    case OutputType::GenerateUntil: break;
  }
  return {"exact_match"};
}

std::vector<std::string> metric_keys(std::string_view name) {
  std::vector<std::string> keys = {"metric", "aggregation", "higher_is_better", "hf_evaluate"};
  if (name == "exact_match")
    keys.insert(keys.end(), {"regexes_to_ignore", "ignore_case", "ignore_punctuation", "ignore_numbers"});
  if (is_metric_of(name, OutputType::Rolling)) keys.emplace_back("count_in");
  return keys;
}

bool is_aggregation(std::string_view name) { return find_aggregation(name) != nullptr; }

std::vector<std::string> aggregation_names() {
  std::vector<std::string> names;
  for (const Aggregation& one : kAggregations) names.emplace_back(one.name);
  return names;
}

double aggregate(std::string_view aggregation, std::span<const MetricValue> values) {
  const Aggregation* const found = find_aggregation(aggregation);
  TESSERA_ASSERT(found != nullptr && !values.empty(), "an aggregation of some values");
  return found->of(pointers_to(values));
}

std::optional<double> standard_error(std::string_view aggregation, std::span<const MetricValue> values,
                                     int64_t iterations) {
  const Aggregation* const found = find_aggregation(aggregation);
  TESSERA_ASSERT(found != nullptr, "an aggregation");
  if (values.size() < 2 || iterations <= 0) return std::nullopt;
  if (found->most_resamples > 0) return bootstrap(*found, values, iterations);
  if (found->name != "mean") return std::nullopt;
  std::vector<double> numbers;
  for (const MetricValue& one : values) numbers.push_back(one.value);
  return sample_deviation(numbers) / std::sqrt(static_cast<double>(values.size()));
}

}  // namespace tessera::scoring
