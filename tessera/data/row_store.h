// Tokenised rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/data/row_file.h"

namespace tessera::data {

class TokenMasks;

// A list of rows, which only grows: rows in memory, and rows of mapped files. A row's labels are its own
// tokens, or its targets, at the positions of its label runs.
class RowStore {
 public:
  // Appends a row; for what it must be see RowBuffer::append().
  void append(std::span<const int32_t> input_ids, std::span<const int32_t> labels);
  void append(const Row& row);
  void append(std::shared_ptr<const RowFile> file);

  // Begins a new dataset, which rows appended from now on belong to. Names are unique: a name that is taken
  // gets a number.
  void begin_dataset(const std::string& name);
  // Returns the number of the row's dataset, counted from 0 in the order of begin_dataset(); 0 if none was
  // begun.
  int64_t dataset(int64_t row) const;
  const std::string& dataset_name(int64_t dataset) const { return dataset_names_[dataset]; }

  int64_t size() const { return size_; }
  // Says that each row is two documents: its type ids tell them apart, and are no kinds of texts.
  void set_pairs(bool are_pairs) { are_pairs_ = are_pairs; }
  bool are_pairs() const { return are_pairs_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t length(int64_t row) const { return entry(row).length; }
  // Returns the number of labels that a model is trained to predict. A label at position 0 does not count, as
  // no token precedes it; in a row with targets all labels count.
  int64_t label_count(int64_t row) const { return entry(row).num_labels; }
  // Hash of the row's tokens, labels and targets. Equal rows have equal hashes.
  uint64_t hash(int64_t row) const { return entry(row).hash; }

  std::span<const int32_t> tokens(int64_t row) const;
  std::span<const LabelRun> label_runs(int64_t row) const;
  // Both are empty where the row has none (Row::targets, Row::type_ids); valid once check() has passed.
  std::span<const float> targets(int64_t row) const;
  std::span<const int32_t> type_ids(int64_t row) const;
  // Throws Error(Storage) if the row in its file does not have the hash of the row that was written.
  void check(int64_t row) const;
  // Calls check(), and returns a copy of the row.
  Row row(int64_t row) const;

 private:
  // Consecutive rows of the store, in a file or in a buffer.
  struct Part {
    int64_t first_row = 0;
    std::shared_ptr<const RowFile> file;
    RowBuffer buffer;

    const RowEntry& entry(int64_t row) const {
      return file ? file->entries()[row - first_row] : buffer.entries[row - first_row];
    }
    const int32_t* words() const { return file ? file->words() : buffer.words.data(); }
  };
  const Part& part_of(int64_t row) const;
  std::span<const int32_t> further_words(int64_t row) const;
  const RowEntry& entry(int64_t row) const { return part_of(row).entry(row); }

  std::vector<Part> parts_;
  int64_t size_ = 0, num_tokens_ = 0;
  std::vector<int64_t> dataset_begins_;
  std::vector<std::string> dataset_names_;
  bool are_pairs_ = false;
};

// Some rows of a store, in a certain order.
struct RowSet {
  std::shared_ptr<const RowStore> store;
  std::vector<int64_t> rows;
  // Masks the rows' labelled tokens for a masked language model; null for any other one.
  std::shared_ptr<const TokenMasks> masks = {};

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  int64_t length(int64_t i) const { return store->length(rows[i]); }
  int64_t label_count(int64_t i) const { return store->label_count(rows[i]); }
};

// Returns `name`, with a number behind it if it is among `taken`.
std::string unique_name(const std::string& name, const std::vector<std::string>& taken);

// Returns how many of `labels`, or of a row's labels, a model is trained to predict
// (RowStore::label_count()).
int64_t count_trained(std::span<const int32_t> labels);
int64_t count_trained(const Row& row);

}  // namespace tessera::data
