// Tokenised rows of dataset entries kept on disk (dataset_prepared_path), so that the next run need not make
// them again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/data/prepare.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/row_store.h"

namespace tessera::data {

// A name for all that the rows of an entry are made from: the content of its files, the keys of entry and
// recipe that shape rows, the chat template, the day where the template can write it,
// `tokenizer_fingerprint`, and the program's version. Throws Error(Storage), and what choosing the entry's
// template throws.
std::string prepared_key(const config::DatasetConfig& dataset, const std::vector<DatasetFile>& files,
                         const PromptContext& context, const std::string& tokenizer_fingerprint);

// One file for each key, complete or absent: any number of processes may read and write at a time.
class PreparedRows {
 public:
  explicit PreparedRows(std::string folder) : folder_(std::move(folder)) {}

  // Appends the rows of `key` to `store` and returns their counts (without path and type). Nothing where
  // there are none, or where the file is not sound, which is warned of. Ids are below `vocab_size`.
  std::optional<DatasetStats> load(const std::string& key, int64_t vocab_size, RowStore& store) const;
  // Keeps the rows of `store` from `first_row` on. What cannot be written is warned of.
  void save(const std::string& key, const RowStore& store, int64_t first_row,
            const DatasetStats& stats) const;

  std::string path_of(const std::string& key) const;

 private:
  std::string folder_;
};

}  // namespace tessera::data
