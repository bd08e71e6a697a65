#include "tessera/scoring/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "tessera/core/error.h"
#include "tessera/scoring/python_random.h"

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
      {"perplexity", "perplexity", false, {LogLikelihood}},
      {"word_perplexity", "weighted_perplexity", false, {Rolling}},
      {"byte_perplexity", "weighted_perplexity", false, {Rolling}},
      {"bits_per_byte", "bits_per_byte", false, {Rolling}},
  };
  return kMetrics;
}

using Values = std::span<const MetricValue>;

double mean(Values values) {
  double sum = 0.0;
  for (const MetricValue& one : values) sum += one.value;
  return sum / static_cast<double>(values.size());
}

double weighted_mean(Values values) {
  double sum = 0.0, weights = 0.0;
  for (const MetricValue& one : values) {
    sum += one.value;
    weights += one.weight;
  }
  return sum / weights;
}

double median(Values values) {
  std::vector<MetricValue> sorted(values.begin(), values.end());
  std::ranges::stable_sort(sorted, {}, &MetricValue::value);
  return sorted[sorted.size() / 2].value;
}

double nanmean(Values values) {
  std::vector<MetricValue> numbers;
  std::ranges::copy_if(values, std::back_inserter(numbers),
                       [](const MetricValue& one) { return !std::isnan(one.value); });
  return numbers.empty() ? std::numeric_limits<double>::quiet_NaN() : mean(numbers);
}

double perplexity(Values values) { return std::exp(-mean(values)); }
double weighted_perplexity(Values values) { return std::exp(-weighted_mean(values)); }
double bits_per_byte(Values values) { return -weighted_mean(values) / std::numbers::ln2; }

struct Aggregation {
  std::string_view name;
  double (*of)(Values);
  bool is_bootstrapped;
};
constexpr std::array<Aggregation, 7> kAggregations = {{{"mean", mean, false},
                                                       {"median", median, true},
                                                       {"nanmean", nanmean, true},
                                                       {"perplexity", perplexity, true},
                                                       {"weighted_perplexity", weighted_perplexity, false},
                                                       {"bits_per_byte", bits_per_byte, false},
                                                       {"brier_score", mean, false}}};

const Aggregation* find_aggregation(std::string_view name) {
  const auto found = std::ranges::find(kAggregations, name, &Aggregation::name);
  return found == kAggregations.end() ? nullptr : &*found;
}

double sample_deviation(Values values) {
  const double center = mean(values);
  double sum = 0.0;
  for (const MetricValue& one : values) sum += (one.value - center) * (one.value - center);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double bootstrap(const Aggregation& aggregation, Values values, int64_t iterations) {
  const int64_t block = std::min<int64_t>(1000, iterations);
  std::vector<MetricValue> results, drawn(values.size());
  const auto count = static_cast<double>(values.size());
  for (int64_t i = 0; i < iterations / block; ++i) {
    PythonRandom random(static_cast<uint64_t>(i));
    for (int64_t k = 0; k < block; ++k) {
      for (MetricValue& one : drawn) one = values[static_cast<size_t>(random.real() * count)];
      results.push_back({aggregation.of(drawn), 1.0});
    }
  }
  return sample_deviation(results);
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
  return found->of(values);
}

std::optional<double> standard_error(std::string_view aggregation, std::span<const MetricValue> values,
                                     int64_t iterations) {
  const Aggregation* const found = find_aggregation(aggregation);
  TESSERA_ASSERT(found != nullptr, "an aggregation");
  if (values.size() < 2 || iterations <= 0) return std::nullopt;
  if (found->name == "mean") return sample_deviation(values) / std::sqrt(static_cast<double>(values.size()));
  if (found->is_bootstrapped) return bootstrap(*found, values, iterations);
  return std::nullopt;
}

}  // namespace tessera::scoring
