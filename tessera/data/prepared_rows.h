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

// Returns a name for all that the rows of an entry are made from: the content of its files, the keys of entry
// and recipe that shape rows, the chat template, the day if the template can write it,
// `tokenizer_fingerprint`, and the program's version. Throws Error(Storage), and what choosing the entry's
// template throws.
std::string prepared_key(const config::DatasetConfig& dataset, const std::vector<DatasetFile>& files,
                         const PromptContext& context, const std::string& tokenizer_fingerprint);

// The rows of one key: a folder of chunks, each a RowFile that is complete or absent. Once all have been
// made, a note in the folder tells their number. Any number of processes, on any machines that share the
// folder, make the chunks together: each claims chunks that nobody has. A claim ends with its process, so a
// process that is killed leaves only complete chunks, and the others or the next run make the rest.
class PreparedRows {
 public:
  // Makes the folder `key` below `folder`. Throws Error(Storage).
  PreparedRows(const std::string& folder, const std::string& key);
  PreparedRows(const PreparedRows&) = delete;
  PreparedRows& operator=(const PreparedRows&) = delete;
  ~PreparedRows();

  // Returns all rows, in order; nothing if some chunks have not been made. If a chunk is damaged, it warns
  // and returns nothing, and claim() then has the chunk made again.
  std::optional<std::vector<std::shared_ptr<const RowFile>>> load() const;

  // Returns whether this process is to make the chunk. It then writes the chunk to chunk_path() and calls
  // give_back(). Throws Error(Storage).
  bool claim(int64_t chunk);
  void give_back(int64_t chunk);
  std::string chunk_path(int64_t chunk) const;

  // Waits until all chunks have been made, notes their number, and returns true. Returns false when a chunk
  // has not been made and nobody is making it.
  bool wait_for(int64_t num_chunks);

  const std::string& path() const { return path_; }

 private:
  bool lock(int64_t chunk, bool takes) const;
  bool is_made(int64_t chunk) const;

  std::string path_;
  int lock_file_ = -1;
};

}  // namespace tessera::data
