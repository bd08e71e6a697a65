// Reads the documents of a dataset, some at a time, from any place on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/step_source.h"
#include "tessera/data/stream/file_mark.h"

namespace tessera::data {

struct StreamedDocument {
  const DatasetFile* file = nullptr;
  std::vector<RawRecord> records;  // one, or the pieces of a text file
};

// The documents that are read, and shuffled, at a time.
struct Window {
  StreamPlace begin, end;                   // `end` is where the next window begins
  std::vector<StreamedDocument> documents;  // in the order of their use; none if the pass ends at once
  int64_t blank_lines = 0;
  int64_t bad_records = 0;  // records that the reader skipped
  std::string first_bad;
};

struct WindowOptions {
  bool shuffles = true;  // shuffles the files in each pass, and the documents in each window
  uint64_t seed = 42;
  int64_t dataset = 0;  // number of the dataset, so that each is shuffled in another way
  int64_t most_documents = 10'000;
  int64_t most_bytes = int64_t{64} << 20;  // by RawRecord::bytes(); the last record may go beyond
  bool skips_bad = false;                  // a bad record is counted if reading can go on
};

// A window is a function of the files, the options and the place where it begins. So reading can go on from
// any place as if it had never stopped. The memory is that of one window.
class WindowReader {
 public:
  // Throws Error(Config) at the entry for files that cannot be found, and for a split or shard that cannot be
  // told without counting all records, and Error(Storage) for those that cannot be read.
  WindowReader(const config::DatasetConfig& dataset, const std::string& source_folder,
               const WindowOptions& options);

  // Returns the window that begins at `begin`; the document and token of `begin` are ignored. Throws what
  // RecordReader::next() throws, Error(Checkpoint) for a place that the files do not have, and what
  // FileMark::check() throws for a file that has changed: ranks read at different moments, and must read the
  // same.
  Window read(const StreamPlace& begin);

  const std::vector<DatasetFile>& files() const { return files_; }
  // Mark of each file, in the order of files().
  const std::vector<FileMark>& marks() const { return marks_; }

 private:
  bool read_record(RawRecord& record, Window& window);
  void open(const StreamPlace& place);
  const DatasetFile& file_at(int64_t pass, int64_t place);
  void open_file(const StreamPlace& place);
  void check_file(const StreamPlace& place);
  void shuffle(Window& window) const;

  const WindowOptions options_;
  std::vector<DatasetFile> files_;
  std::vector<FileMark> marks_;
  RecordRange range_;           // the records of a pass that are read
  std::vector<int64_t> order_;  // numbers of the files, in the order of ordered_pass_
  int64_t ordered_pass_ = -1;
  StreamPlace at_;                        // place of the next record; its line and offset are not kept
  std::unique_ptr<RecordReader> reader_;  // stands at at_; null if it must be opened
  int64_t blank_lines_ = 0;               // blank lines of reader_ that have been counted
};

}  // namespace tessera::data
