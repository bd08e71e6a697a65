#include "tessera/data/readers/record_batches.h"

#include <utility>

#include "tessera/core/error.h"

namespace tessera::data {
namespace {

enum class Next { Record, Bad, End };

Next read_next(RecordReader& reader, RawRecord& record, bool skips_bad, std::string& what) {
  try {
    return reader.next(record) ? Next::Record : Next::End;
  } catch (const Error& error) {
    if (!skips_bad || error.kind() != ErrorKind::Data || !reader.can_continue()) throw;
    what = error.what();
    return Next::Bad;
  }
}

}  // namespace

bool RecordBatches::next(RecordBatch& batch) {
  batch = RecordBatch{};
  while (batch.bytes < batch_bytes_ && index_ < range_.end) {
    if (!reader_) {
      // All records of a batch are of one file.
      if (batch.file != nullptr || next_file_ == files_.size()) break;
      const DatasetFile& file = files_[next_file_++];
      reader_ = open_records(file.path, file.format);
      blank_lines_ = 0;
    }
    RawRecord record;
    std::string what;
    const Next next = read_next(*reader_, record, skips_bad_, what);
    if (next == Next::End) {
      // Blank lines behind the last record of a full batch form another batch, which has no records.
      if (batch.file == nullptr && index_ >= range_.begin && new_blank_lines() > 0)
        batch.file = &files_[next_file_ - 1];
      if (batch.file != nullptr) batch.blank_lines += new_blank_lines();
      reader_.reset();
      continue;
    }
    if (index_++ < range_.begin) {
      blank_lines_ = reader_->counts().blank_lines;
      continue;
    }
    if (batch.file == nullptr) batch.file = &files_[next_file_ - 1];
    if (next == Next::Bad) {
      ++batch.bad_records;
      if (batch.first_bad.empty()) batch.first_bad = what;
      batch.bytes += static_cast<int64_t>(what.size());
    } else {
      batch.bytes += record.bytes();
      batch.records.push_back(std::move(record));
    }
  }
  if (reader_ && batch.file != nullptr) {
    batch.blank_lines += new_blank_lines();
    blank_lines_ = reader_->counts().blank_lines;
  }
  return batch.file != nullptr;
}

int64_t RecordBatches::new_blank_lines() const { return reader_->counts().blank_lines - blank_lines_; }

int64_t count_records(const std::vector<DatasetFile>& files, bool skips_bad) {
  int64_t count = 0;
  RawRecord record;
  std::string what;
  for (const DatasetFile& file : files) {
    const auto reader = open_records(file.path, file.format);
    while (read_next(*reader, record, skips_bad, what) != Next::End) ++count;
  }
  return count;
}

}  // namespace tessera::data
