// Rows in a file that is mapped and not read: tokens and labels of some rows, one after the other, and an
// index.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/data/prepare_stats.h"
#include "tessera/io/file.h"
#include "tessera/io/mapped_file.h"

namespace tessera::data {

// Half-open range of positions of one row that carry labels. Runs lie in order and may touch
// (Row::run_starts).
struct LabelRun {
  int32_t begin = 0;
  int32_t end = 0;
};

// The entry of one row in an index. From `offset` on lie, in units of 4 bytes, the row's tokens, its label
// runs and, if it has any, its further words: the number of its targets, these, and its type ids.
struct RowEntry {
  int64_t offset = 0;
  uint64_t hash = 0;  // hash_of_row()
  int32_t length = 0;
  int32_t num_runs = 0;
  int32_t num_labels = 0;  // trained labels, see RowStore::label_count()
  int32_t num_further = 0;
};

// Rows in memory, in the form in which a file holds them.
struct RowBuffer {
  std::vector<RowEntry> entries;
  std::vector<int32_t> words;
  int64_t num_tokens = 0;

  // Appends a row. `input_ids` and `labels` must have the same size, at most 2^31 - 1, and labels[i] must be
  // input_ids[i] or kIgnoreLabel. `first_word` is the offset of words[0], from which the entry's offset
  // counts.
  void append(std::span<const int32_t> input_ids, std::span<const int32_t> labels, int64_t first_word = 0);
  void append(const Row& row, int64_t first_word = 0);

 private:
  void append(std::span<const int32_t> input_ids, std::span<const int32_t> labels,
              std::span<const int32_t> run_starts, std::span<const int32_t> further, int64_t first_word);
};

// Returns a hash of a row's tokens, label runs and further words.
uint64_t hash_of_row(std::span<const int32_t> tokens, std::span<const LabelRun> runs,
                     std::span<const int32_t> further = {});

// Counts that go with rows, and the first record that was skipped.
struct RowFileNotes {
  DatasetStats stats;
  std::string first_bad;
};

class RowFile {
 public:
  // Opens a file. Returns null if it is not there, or if its index is not what RowFileWriter wrote. Reads the
  // index alone: the contents of a row are checked by its hash when it is used (RowStore::check()). Throws
  // Storage.
  static std::shared_ptr<const RowFile> open(const std::string& path);

  std::span<const RowEntry> entries() const { return entries_; }
  const int32_t* words() const { return words_; }
  int64_t num_tokens() const { return num_tokens_; }
  const RowFileNotes& notes() const { return notes_; }
  const std::string& path() const { return file_.path(); }

 private:
  io::MappedFile file_;
  std::span<const RowEntry> entries_;
  const int32_t* words_ = nullptr;
  int64_t num_tokens_ = 0;
  RowFileNotes notes_;
};

// Writes a file of any size, of which only the index is held in memory. The file appears complete, by
// finish(), or not at all. Throws Storage.
class RowFileWriter {
 public:
  explicit RowFileWriter(const std::string& path) : file_(path) {}

  void append(const Row& row);
  void finish(const RowFileNotes& notes);

 private:
  void flush();

  io::AtomicFile file_;
  RowBuffer buffer_;  // holds the entries of all rows, and the words not yet written
  int64_t written_words_ = 0;
};

}  // namespace tessera::data
