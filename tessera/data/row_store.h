// Tokenised rows in flat arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/batch.h"

namespace tessera::data {

// Half-open range of positions of one row that carry labels.
struct LabelRun {
  int32_t begin = 0;
  int32_t end = 0;
};

// Append-only. A row's labels are its own tokens at the positions of its label runs.
class RowStore {
 public:
  // Requires equal sizes, at most 2^31 - 1 tokens, and labels[i] of input_ids[i] or kIgnoreLabel.
  void append(std::span<const int32_t> input_ids, std::span<const int32_t> labels);
  void append(const Row& row) { append(row.input_ids, row.labels); }

  // The rows to come are of another dataset. Names are unique: one that is taken gets a number.
  void begin_dataset(const std::string& name);
  // Of a row: 0 is the first one begun; 0 where none was.
  int64_t dataset(int64_t row) const;
  const std::string& dataset_name(int64_t dataset) const { return dataset_names_[dataset]; }

  int64_t size() const { return static_cast<int64_t>(token_offsets_.size()) - 1; }
  int64_t num_tokens() const { return token_offsets_.back(); }
  int64_t length(int64_t row) const { return token_offsets_[row + 1] - token_offsets_[row]; }
  // Positions that a model is trained to predict: labels, without one at position 0, which nothing precedes.
  int64_t label_count(int64_t row) const;

  std::span<const int32_t> tokens(int64_t row) const {
    return {tokens_.data() + token_offsets_[row], static_cast<size_t>(length(row))};
  }
  std::span<const LabelRun> label_runs(int64_t row) const {
    return {runs_.data() + run_offsets_[row], static_cast<size_t>(run_offsets_[row + 1] - run_offsets_[row])};
  }
  Row row(int64_t row) const;

 private:
  std::vector<int32_t> tokens_;
  std::vector<int64_t> token_offsets_ = {0};
  std::vector<LabelRun> runs_;
  std::vector<int64_t> run_offsets_ = {0};
  std::vector<int64_t> dataset_begins_;
  std::vector<std::string> dataset_names_;
};

// Some rows of a store, in an order.
struct RowSet {
  std::shared_ptr<const RowStore> store;
  std::vector<int64_t> rows;

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  int64_t length(int64_t i) const { return store->length(rows[i]); }
  int64_t label_count(int64_t i) const { return store->label_count(rows[i]); }
};

// How many labels of `labels` a model is trained to predict (see RowStore::label_count).
int64_t count_trained(std::span<const int32_t> labels);

}  // namespace tessera::data
