// Makes the rows of one dataset entry, and puts them into a store.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/data/control_tokens.h"
#include "tessera/data/prepare.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/readers/record_batches.h"
#include "tessera/data/row_file.h"

namespace tessera::data {

// Both functions return a name of the entry for messages. shown_path() gives its name on the hub, or else its
// path; short_name() gives "gsm8k" for openai/gsm8k, and "chats" for data/chats.jsonl.gz or chats/*.jsonl.
const std::string& shown_path(const config::DatasetConfig& dataset);
std::string short_name(const config::DatasetConfig& dataset);

// Returns whether control tokens that the entry's records spell are plain text. In the other types
// (input_output, rows of token ids) such tokens are meant.
bool spells_plain_text(const config::DatasetConfig& entry);
// Returns the entry as it holds for one of its files: text files hold completions, whatever else the folder
// holds. Throws Error(Config) for a text file of a type that has columns.
config::DatasetConfig entry_for(const config::DatasetConfig& dataset, const DatasetFile& file);

class DatasetReader {
 public:
  // `context` is borrowed, and must live as long as the reader.
  DatasetReader(const PromptContext& context, const PrepareOptions& options);

  // Appends the entry's rows to the store. They are taken from dataset_prepared_path if they are kept there,
  // else made, and kept if the recipe has such a path. Throws what prepare_data() throws.
  DatasetStats read(const config::DatasetConfig& dataset, RowStore& store);

 private:
  struct Source;
  using Keep = std::function<void(const Row&)>;

  bool keeps() const;
  void read_kept(const Source& source, RowStore& store);
  void read_into(const Source& source, RowStore& store);
  int64_t make_chunks(const Source& source, class PreparedRows& kept);
  void tokenize(const Source& source, const RecordBatch& batch, RowFileNotes& notes, const Keep& keep);
  void add(const RowFileNotes& notes);
  void limit_bad_records(int64_t more, const std::string& first);
  void check(const config::DatasetConfig& dataset) const;

  const PromptContext& context_;
  const config::DataConfig& config_;
  PrepareOptions options_;
  std::optional<ControlTokens> control_tokens_;
  RowFileNotes notes_;       // counts of the entry that is being read
  int64_t bad_records_ = 0;  // bad records of all entries read so far
};

}  // namespace tessera::data
