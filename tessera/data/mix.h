// Mixes the rows of several datasets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/row_store.h"

namespace tessera::data {

// Returns the rows of an epoch by `mix_strategy`. With `concat` these are `rows` as they are. Else rows are
// drawn one after the other from datasets chosen at random by mix_probabilities(), each dataset's in the
// order of `rows`: `interleave_under` ends when the first dataset has run out, `interleave_over` when all
// have, and datasets that run out before begin again. The result is a function of the arguments alone. Throws
// Error(Config) for weights so uneven that an epoch would have more than 1000 times the rows.
std::vector<int64_t> mix_rows(const RowSet& rows, const config::DataConfig& config, uint64_t seed);

// Returns the probability of each dataset, which is proportional to weight * size^(1 / mix_temperature), or
// without mix_temperature to its weight alone; 0 for a dataset of size 0.
std::vector<double> mix_probabilities(const config::DataConfig& config, std::span<const int64_t> sizes);

// Returns whether the weight of an entry changes at a step (`weight_from_step`).
bool has_curriculum(const config::DataConfig& config);

// Chooses the dataset of each sequence in a run without epochs. It is drawn by the weights that hold at the
// sequence's step (`weight`, `weight_from_step`), as a function of the seed and the sequence's number.
class StepMix {
 public:
  // Datasets for which `is_there` is false are never drawn. Throws Error(Config) for a weight_from_step that
  // is no map from steps to weights.
  StepMix(const std::vector<config::DatasetConfig>& datasets, const std::vector<bool>& is_there,
          uint64_t seed, int64_t samples_per_step);

  // Returns the dataset of sequence number `sample`. If no dataset has a weight at its step, this is the
  // first one that is there.
  size_t dataset_of(int64_t sample) const;

 private:
  std::vector<std::map<int64_t, double>> weights_;  // of each dataset: step (1-based) -> weight from it on
  size_t first_ = 0;
  const uint64_t seed_;
  const int64_t samples_per_step_;
};

}  // namespace tessera::data
