// The records of a dataset's files, in batches of bounded size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/data/readers/dataset_files.h"

namespace tessera::data {

struct RecordBatch {
  const DatasetFile* file = nullptr;  // the file of all these records
  std::vector<RawRecord> records;     // may be empty
  int64_t bytes = 0;                  // sum of their RawRecord::bytes()
  int64_t blank_lines = 0;
  int64_t bad_records = 0;  // records that the reader skipped
  std::string first_bad;
};

// Cuts the records of files into batches. The cuts are a function of the files, the range and the batch size.
class RecordBatches {
 public:
  // If `skips_bad` is set, a record that a reader refuses is counted if reading can go on behind it. A batch
  // ends at `batch_bytes` and at the end of a file. `files` is borrowed.
  RecordBatches(const std::vector<DatasetFile>& files, const RecordRange& range, bool skips_bad,
                int64_t batch_bytes)
      : files_(files), range_(range), skips_bad_(skips_bad), batch_bytes_(batch_bytes) {}

  // Reads the next batch; returns false at the end. Throws what RecordReader::next() throws.
  bool next(RecordBatch& batch);

 private:
  int64_t new_blank_lines() const;

  const std::vector<DatasetFile>& files_;
  RecordRange range_;
  bool skips_bad_;
  int64_t batch_bytes_;
  size_t next_file_ = 0;
  int64_t index_ = 0;        // number of the next record, over all files
  int64_t blank_lines_ = 0;  // of the open file, as far as batches have them or the range begins behind them
  std::unique_ptr<RecordReader> reader_;
};

// Counts the records of the files; bad ones are counted too if they are skipped.
int64_t count_records(const std::vector<DatasetFile>& files, bool skips_bad);

}  // namespace tessera::data
