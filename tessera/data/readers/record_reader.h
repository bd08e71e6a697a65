// Streams of raw records: JSON lines, JSON arrays, text files.
#pragma once

#include <memory>
#include <string>

#include "tessera/data/readers/raw_record.h"

namespace tessera::data {

enum class FileFormat { JsonLines, Json, Text };

// Reads one file from start to end, one record at a time, in bounded memory.
class RecordReader {
 public:
  virtual ~RecordReader() = default;

  // The next record; false at the end. Throws Error(Data) at file:line:column for a broken file and
  // Error(Storage) for a failed read.
  virtual bool next(RawRecord& record) = 0;
  // After next() threw: whether the reader stands behind the bad record, so that next() may be called again.
  virtual bool can_continue() const = 0;

  const ReadCounts& counts() const { return counts_; }

 protected:
  ReadCounts counts_;
};

// One record a line. Blank lines are counted, CR before LF is dropped.
std::unique_ptr<RecordReader> open_json_lines(const std::string& path);
// The elements of one array, or a sequence of objects (pretty-printed or one a line).
std::unique_ptr<RecordReader> open_json(const std::string& path);
// One document: the file's text, in pieces of at most 8 MiB that end at line ends.
std::unique_ptr<RecordReader> open_text(const std::string& path);

std::unique_ptr<RecordReader> open_records(const std::string& path, FileFormat format);

}  // namespace tessera::data
