// The documents of a dataset, some at a time, from any place on.
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

// What is shuffled at a time.
struct Window {
  StreamPlace begin, end;                   // `end`: where the next one begins
  std::vector<StreamedDocument> documents;  // in the order of their use; none where a pass ends
  int64_t blank_lines = 0;
  int64_t bad_records = 0;  // that the reader skipped
  std::string first_bad;
};

struct WindowOptions {
  bool shuffles = true;  // files in each pass, documents in each window
  uint64_t seed = 42;
  int64_t dataset = 0;  // so that datasets are shuffled differently
  int64_t most_documents = 10'000;
  int64_t most_bytes = int64_t{64} << 20;  // of text; the last document may go beyond
  bool skips_bad = false;                  // what cannot be read is counted where reading can go on
};

// A window is a function of the files, the options and the place where it begins: so reading goes on at any
// place of it as if it had never stopped. The memory is that of one window.
class WindowReader {
 public:
  // Throws Error(Config) at the entry for files that cannot be found, and for a part of them that cannot be
  // told without counting all records, and Error(Storage) for those that cannot be read.
  WindowReader(const config::DatasetConfig& dataset, const std::string& source_folder,
               const WindowOptions& options);

  // The window that begins at `begin`, whose document and token are not looked at. Throws what
  // RecordReader::next() throws, Error(Checkpoint) for a place that the files do not have, and what
  // FileMark::check() throws of a file that has changed: ranks read at different moments.
  Window read(const StreamPlace& begin);

  const std::vector<DatasetFile>& files() const { return files_; }
  // Of each of them, in their order.
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
  RecordRange range_;           // of a pass
  std::vector<int64_t> order_;  // of the files in ordered_pass_
  int64_t ordered_pass_ = -1;
  StreamPlace at_;                        // of the next record
  std::unique_ptr<RecordReader> reader_;  // stands there; null where it must be opened
  int64_t blank_lines_ = 0;               // of its, that are counted
};

}  // namespace tessera::data
