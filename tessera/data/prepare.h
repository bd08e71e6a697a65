// From the datasets of a recipe to tokenised rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/prepare_stats.h"
#include "tessera/data/row_store.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

struct PreparedData {
  RowSet train;                           // none of a recipe that streams
  RowSet eval;                            // from test_datasets or val_set_size; may be empty
  std::vector<DatasetStats> train_stats;  // one an entry of datasets, before val_set_size takes its share
  std::vector<DatasetStats> eval_stats;   // one an entry of test_datasets
};

struct PrepareOptions {
  int64_t vocab_size = 0;   // the model's, which ids of all rows must be below; 0 = the tokenizer's
  int64_t num_threads = 0;  // 0 = one a core
  // Tells tokenizers apart; with dataset_prepared_path rows are kept there (prepared_rows.h).
  // Empty: they are not.
  std::string tokenizer_fingerprint;
  // What templates call now, as RenderOptions::now: ranks must agree in it. Nothing: local_clock().
  std::optional<int64_t> now = std::nullopt;
  // Text of the records that are made into rows at a time, and kept as one file; memory is a few times that.
  int64_t chunk_bytes = int64_t{64} << 20;
  uint64_t seed = 42;  // of the order in which the rows of all datasets are merged
};

// Reads and tokenises everything in parallel; the outcome does not depend on the number of threads or ranks.
// `chat_template` is that of `config` (default_chat_template()); null where there is none. Throws
// Error(Config) for an entry that cannot be, Error(Storage) for a failed read, and Error(Data) at
// file:line:column for a bad record (with on_bad_line: skip, for more than max_bad_lines of them), and with
// numbers for a dataset that leaves no row.
PreparedData prepare_data(const config::DataConfig& config, const text::Tokenizer& tokenizer,
                          const text::ChatTemplate* chat_template, const PrepareOptions& options = {});
// The same for a model without a tokenizer: Error(Model) for a dataset that is not token ids.
// options.vocab_size must be given.
PreparedData prepare_token_ids(const config::DataConfig& config, const PrepareOptions& options);

}  // namespace tessera::data
