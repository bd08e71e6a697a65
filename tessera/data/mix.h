// How rows of several datasets are mixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/row_store.h"

namespace tessera::data {

// The rows of an epoch by `mix_strategy`: `concat`, `rows` as they are; else rows drawn one after the other
// from datasets chosen at random, by the probabilities of mix_probabilities(), each dataset's in the order of
// `rows`. `interleave_under` ends when the first dataset has run out, `interleave_over` when all have; those
// that run out before begin again. A function of its arguments alone. Throws Error(Config) for weights so
// uneven that an epoch would have more than 1000 times the rows.
std::vector<int64_t> mix_rows(const RowSet& rows, const config::DataConfig& config, uint64_t seed);

// Of each dataset: its `weight` x size^(1 / mix_temperature) over the sum of these; without mix_temperature
// its weight alone.
std::vector<double> mix_probabilities(const config::DataConfig& config, std::span<const int64_t> sizes);

// Whether an entry's weight changes at a step.
bool has_curriculum(const config::DataConfig& config);

// Which dataset each sequence of a run without epochs is of: drawn by the weights that hold at its step
// (`weight`, `weight_from_step`). A function of the sequence's number.
class StepMix {
 public:
  // Those that `is_there` denies are never drawn. Throws Error(Config) for what is no map of weights.
  StepMix(const std::vector<config::DatasetConfig>& datasets, const std::vector<bool>& is_there,
          uint64_t seed, int64_t samples_per_step);

  // Where none has a weight, the first that is there.
  size_t dataset_of(int64_t sample) const;

 private:
  std::vector<std::map<int64_t, double>> weights_;  // from a step (1-based) on
  size_t first_ = 0;
  const uint64_t seed_;
  const int64_t samples_per_step_;
};

}  // namespace tessera::data
