// Makes tokenised rows of the datasets of a recipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/prepare_stats.h"
#include "tessera/data/prompts/classification.h"
#include "tessera/data/prompts/masked_lm.h"
#include "tessera/data/prompts/seq2seq.h"
#include "tessera/data/row_store.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

struct PreparedData {
  RowSet train;                           // empty for a recipe that streams
  RowSet eval;                            // from test_datasets or val_set_size; may be empty
  std::vector<DatasetStats> train_stats;  // one for each entry of datasets, before val_set_size takes a part
  std::vector<DatasetStats> eval_stats;   // one for each entry of test_datasets
};

struct PrepareOptions {
  int64_t vocab_size = 0;   // the model's, which ids of all rows must be below; 0 = the tokenizer's
  int64_t num_threads = 0;  // 0 = one for each core
  // Tells tokenizers apart. If it is empty, rows are not kept, even if the recipe has a dataset_prepared_path
  // (prepared_rows.h).
  std::string tokenizer_fingerprint;
  // The time that templates take as now (RenderOptions::now), which must be the same on all ranks;
  // local_clock() if it is not given.
  std::optional<int64_t> now = std::nullopt;
  // Bytes of records' text that are made into rows at a time, and kept as one file. Memory use is a few times
  // that.
  int64_t chunk_bytes = int64_t{64} << 20;
  // Set for rows of texts with labels (task: classification).
  std::optional<ClassificationRows> classification = std::nullopt;
  // Set for rows of sources and targets (task: seq2seq).
  std::optional<Seq2SeqRows> seq2seq = std::nullopt;
  // Set for rows of plain texts to mask (task: masked_lm).
  std::optional<MaskedRows> masked = std::nullopt;
  uint64_t seed = 42;  // for the order in which the rows of all datasets are merged
};

// Reads and tokenises everything in parallel; the outcome does not depend on the number of threads or ranks.
// `chat_template` is that of `config` (default_chat_template()); null if there is none. Throws Error(Config)
// for an entry that cannot be used, Error(Storage) for a failed read, Error(Data) at file:line:column for a
// bad record (with on_bad_line: skip, for more than max_bad_lines of them), and Error(Data) with counts for a
// dataset that leaves no row.
PreparedData prepare_data(const config::DataConfig& config, const text::Tokenizer& tokenizer,
                          const text::ChatTemplate* chat_template, const PrepareOptions& options = {});
// Does the same for a model without a tokenizer. Throws Error(Model) for a dataset that is not token ids.
// options.vocab_size must be given.
PreparedData prepare_token_ids(const config::DataConfig& config, const PrepareOptions& options);

}  // namespace tessera::data
