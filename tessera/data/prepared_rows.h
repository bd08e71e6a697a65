// Tokenised rows of dataset entries kept on disk (dataset_prepared_path), so that they are made once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/data/prompts/prompt.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/row_file.h"

namespace tessera::data {

// A name for all that the rows of an entry are made from: the content of its files, the keys of entry and
// recipe that shape rows, the chat template, the day where the template can write it,
// `tokenizer_fingerprint`, and the program's version. Throws Error(Storage), and what choosing the entry's
// template throws.
std::string prepared_key(const config::DatasetConfig& dataset, const std::vector<DatasetFile>& files,
                         const PromptContext& context, const std::string& tokenizer_fingerprint);

// The rows of one key: a folder of chunks, each a RowFile that is complete or absent, and a note of how many
// there are once all have been made. Any number of processes, of any machines that share the folder, make
// them together: each claims chunks that nobody has. A claim ends with its process, so one that is killed
// leaves only what is whole, and its work goes on with the others or with the next run.
class PreparedRows {
 public:
  // Makes the folder `key` below `folder`. Throws Error(Storage).
  PreparedRows(const std::string& folder, const std::string& key);
  PreparedRows(const PreparedRows&) = delete;
  PreparedRows& operator=(const PreparedRows&) = delete;
  ~PreparedRows();

  // All rows, in order. Nothing where some have not been made; damaged ones are removed, with a warning.
  std::optional<std::vector<std::shared_ptr<const RowFile>>> load() const;

  // Whether the chunk is for this process to make, which then writes it to chunk_path() and gives it back.
  bool claim(int64_t chunk);
  void give_back(int64_t chunk);
  std::string chunk_path(int64_t chunk) const;

  // Waits until all chunks have been made, and notes their number: true. False when some have not, and
  // nobody makes them.
  bool wait_for(int64_t num_chunks);

  const std::string& path() const { return path_; }

 private:
  bool lock(int64_t chunk, bool takes) const;
  bool is_made(int64_t chunk) const;

  std::string path_;
  int lock_file_ = -1;
};

}  // namespace tessera::data
