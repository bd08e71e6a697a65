// From the datasets of a recipe to tokenised rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/row_store.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// What became of the records of one dataset entry. Every record and row is in exactly one count of what was
// left out, or among `rows`.
struct DatasetStats {
  std::string path, type;
  int64_t records = 0;             // read, of those that `split` and `shards` leave
  int64_t bad_records = 0;         // skipped by on_bad_line: skip
  int64_t blank_lines = 0;         // not records
  int64_t rows = 0;                // kept
  int64_t tokens = 0;              // of the kept rows
  int64_t label_tokens = 0;        // of the kept rows: positions that are trained
  int64_t end_labels = 0;          // trained end-of-turn and EOS tokens among them
  int64_t untrained_ends = 0;      // rows with a trained turn whose end-of-turn or EOS token is not trained
  int64_t repeated_ends = 0;       // rows in which such a token stands twice in a row
  int64_t control_texts = 0;       // records that spell a control token, which stays plain text
  int64_t longest = 0;             // tokens of the longest row, before any was dropped or truncated
  int64_t dropped_long = 0;        // rows above sequence_len, with excess_length_strategy: drop
  int64_t truncated = 0;           // rows cut to sequence_len and kept
  int64_t cut_tokens = 0;          // tokens that truncation took
  int64_t dropped_short = 0;       // rows below min_sample_len
  int64_t dropped_unlabelled = 0;  // rows without (after truncation) a token to train

  DatasetStats& operator+=(const DatasetStats& other);
};

// What to say of a dataset whose rows will not teach a model to stop, or to stop twice: ends that are not
// trained, as with a template whose control tokens the tokenizer lacks, and ends that are doubled.
std::vector<std::string> data_warnings(const DatasetStats& stats);

struct PreparedData {
  RowSet train;
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
