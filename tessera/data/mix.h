// How rows of several datasets are mixed.
#pragma once

#include <cstdint>
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

}  // namespace tessera::data
