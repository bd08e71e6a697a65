#include "tessera/data/mix.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>

#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/data/readers/split.h"

namespace tessera::data {
namespace {

constexpr double kMostRounds = 1000.0;

std::map<int64_t, double> weights_of(const config::DatasetConfig& dataset) {
  std::map<int64_t, double> weights = {{0, dataset.weight}};
  const auto refuse = [&](const std::string& got, const char* need) {
    throw entry_error(dataset, "WEIGHT", "key 'weight_from_step' is a map from steps to weights")
        .got("'" + got + "'")
        .need(need);
  };
  for (const auto& [step, weight] : dataset.weight_from_step) {
    const config::ParsedInteger from = config::parse_integer(step);
    if (from.status != config::IntegerStatus::Ok || from.value < 1) refuse(step, "a step, from 1 on");
    const double value = config::parse_number(weight).value_or(-1.0);
    if (!std::isfinite(value) || value < 0.0) refuse(weight, "a weight, from 0 on");
    weights[from.value] = value;
  }
  return weights;
}

}  // namespace

std::vector<double> mix_probabilities(const config::DataConfig& config, std::span<const int64_t> sizes) {
  std::vector<double> shares;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double size = static_cast<double>(sizes[i]);
    const double factor = config.mix_temperature > 0 ? std::pow(size, 1.0 / config.mix_temperature) : 1.0;
    shares.push_back(sizes[i] > 0 ? config.datasets[i].weight * factor : 0.0);
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

std::vector<int64_t> mix_rows(const RowSet& rows, const config::DataConfig& config, uint64_t seed) {
  if (config.mix_strategy == "concat") return rows.rows;
  const bool is_over = config.mix_strategy == "interleave_over";
  std::vector<std::vector<int64_t>> of_dataset(config.datasets.size());
  for (const int64_t row : rows.rows)
    of_dataset[static_cast<size_t>(rows.store->dataset(row))].push_back(row);
  std::vector<int64_t> sizes;
  for (const auto& list : of_dataset) sizes.push_back(static_cast<int64_t>(list.size()));
  const std::vector<double> shares = mix_probabilities(config, sizes);

  double most = 0.0;
  size_t left = 0;
  std::vector<double> bounds;  // upper bounds of the datasets' parts of [0, 1)
  for (size_t i = 0; i < shares.size(); ++i) {
    bounds.push_back((bounds.empty() ? 0.0 : bounds.back()) + shares[i]);
    if (sizes[i] == 0) continue;
    ++left;
    most = std::max(most, static_cast<double>(sizes[i]) / shares[i]);
  }
  if (is_over && most > kMostRounds * static_cast<double>(rows.size())) {
    throw Error(ErrorKind::Config, "MIX", "mix_strategy: interleave_over: the weights are too uneven")
        .at(config.datasets.front().source_file, config.datasets.front().source_line)
        .got("an epoch of about " + std::to_string(static_cast<int64_t>(most)) + " rows")
        .need("at most 1000 times the " + std::to_string(rows.size()) + " rows of the datasets");
  }
  const CounterRng rng(seed, stream_of("data.mix"));
  std::vector<size_t> next(sizes.size(), 0);
  std::vector<bool> has_run_out(sizes.size(), false);
  std::vector<int64_t> mixed;
  for (uint64_t draw = 0; left > 0; ++draw) {
    const auto above = std::ranges::upper_bound(bounds, rng.uniform(draw));
    // Rounding may leave the last bound a little below 1.
    const size_t dataset =
        above == bounds.end() ? bounds.size() - 1 : static_cast<size_t>(above - bounds.begin());
    const auto& list = of_dataset[dataset];
    if (list.empty()) continue;
    mixed.push_back(list[next[dataset]++]);
    if (next[dataset] < list.size()) continue;
    next[dataset] = 0;
    if (!is_over) break;
    left -= has_run_out[dataset] ? 0 : 1;
    has_run_out[dataset] = true;
  }
  return mixed;
}

bool has_curriculum(const config::DataConfig& config) {
  return std::ranges::any_of(config.datasets,
                             [](const auto& dataset) { return !dataset.weight_from_step.empty(); });
}

StepMix::StepMix(const std::vector<config::DatasetConfig>& datasets, const std::vector<bool>& is_there,
                 uint64_t seed, int64_t samples_per_step)
    : first_(static_cast<size_t>(std::ranges::find(is_there, true) - is_there.begin())),
      seed_(seed),
      samples_per_step_(samples_per_step) {
  for (size_t i = 0; i < datasets.size(); ++i) {
    weights_.push_back(weights_of(datasets[i]));
    if (!is_there[i]) weights_.back() = {{0, 0.0}};
  }
}

size_t StepMix::dataset_of(int64_t sample) const {
  if (weights_.size() == 1) return 0;
  const int64_t step = sample / samples_per_step_ + 1;
  double sum = 0.0;
  std::vector<double> bounds;
  for (const auto& weights : weights_) {
    sum += std::prev(weights.upper_bound(step))->second;
    bounds.push_back(sum);
  }
  if (sum == 0.0) return first_;
  const CounterRng rng(seed_, stream_of("stream.mix"));
  const double place = rng.uniform(static_cast<uint64_t>(sample)) * sum;
  const auto above = std::ranges::upper_bound(bounds, place);
  // Rounding may leave the place at the last bound: then it belongs to the last dataset that has a weight.
  if (above == bounds.end()) return static_cast<size_t>(std::ranges::find(bounds, sum) - bounds.begin());
  return static_cast<size_t>(above - bounds.begin());
}

}  // namespace tessera::data
