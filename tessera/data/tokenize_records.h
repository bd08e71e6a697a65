// Makes records into rows, in parallel, and filters the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/data/control_tokens.h"
#include "tessera/data/prepare.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/readers/dataset_files.h"

namespace tessera::data {

// The outcome of one record: its rows that pass the filters, with their counts, or an error.
struct TokenizedRecord {
  std::vector<Row> rows;
  DatasetStats stats;
  std::optional<Error> error;  // names file:line:column
  bool must_raise = false;     // an error that on_bad_line: skip does not cover
};

class RecordTokenizer {
 public:
  // Everything is borrowed. Ids of kept rows must be below `vocab_size`, unless it is 0. Records that spell
  // one of `control_tokens` are counted; none are if it is null.
  RecordTokenizer(const PromptType& prompt, const config::DatasetConfig& dataset, const DatasetFile& file,
                  const config::DataConfig& config, int64_t vocab_size, int64_t num_threads,
                  const ControlTokens* control_tokens = nullptr);

  // Returns one result for each record, in the records' order.
  std::vector<TokenizedRecord> run(const std::vector<RawRecord>& records) const;

  // Makes one record into rows. Thread-safe.
  TokenizedRecord tokenize(const RawRecord& record) const;

 private:
  void count_notes(const RecordNotes& notes, const RawRecord& record, DatasetStats& stats) const;
  void filter(Row&& row, TokenizedRecord& out) const;
  void check_ids(const Row& row) const;
  void count_ends(const Row& row, DatasetStats& stats) const;

  const PromptType& prompt_;
  const config::DatasetConfig& dataset_;
  const DatasetFile& file_;
  const config::DataConfig& config_;
  std::vector<int32_t> end_tokens_;
  int64_t vocab_size_, num_threads_;
  const ControlTokens* control_tokens_;
};

}  // namespace tessera::data
