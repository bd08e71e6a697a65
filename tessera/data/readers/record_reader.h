// Streams of raw records: JSON lines, JSON arrays, CSV, text files, tables. All but tables may be gzip or
// Zstandard files.
#pragma once

#include <memory>
#include <string>

#include "tessera/data/readers/raw_record.h"

namespace tessera::data {

enum class FileFormat { JsonLines, Json, Text, Csv, Tsv, Table };

// Reads one file from start to end, one record at a time, in bounded memory.
class RecordReader {
 public:
  virtual ~RecordReader() = default;

  // The next record; false at the end. Throws Error(Data) at file:line:column for a broken file and
  // Error(Storage) for a failed read.
  virtual bool next(RawRecord& record) = 0;
  // Passes over the next `count` (at least 1) records, bad ones too. `line` and `offset` are those of the
  // last of them. Throws what next() throws, but for records that it can go on behind.
  virtual void skip(int64_t count, int64_t line, int64_t offset);
  // After next() threw: whether the reader stands behind the bad record, so that next() may be called again.
  virtual bool can_continue() const = 0;

  const ReadCounts& counts() const { return counts_; }

 protected:
  ReadCounts counts_;
};

// One record a line. Blank lines are counted, CR before LF is dropped.
std::unique_ptr<RecordReader> open_json_lines(const std::string& path);
// Whether a file is one array, which no file of lines with an object each is: arrays are often saved under
// the name of JSON Lines.
bool begins_with_array(const std::string& path);
// The elements of one array, or a sequence of objects (pretty-printed or one a line), or the objects of the
// list that one object holds under a name such as "data" or "rows".
std::unique_ptr<RecordReader> open_json(const std::string& path);
// One document: the file's text, in pieces of at most 8 MiB that end at line ends.
std::unique_ptr<RecordReader> open_text(const std::string& path);
// One record a row, with the names of the first row. Cells are texts, empty ones null (quoted ones "").
std::unique_ptr<RecordReader> open_csv(const std::string& path, char delimiter);
// The rows of a parquet or arrow file, in the memory of some rows (of an arrow file, of one of its batches).
// Throws Error(Config) where the library for them is missing (require_table_library()).
std::unique_ptr<RecordReader> open_table(const std::string& path);
// Throws Error(Config), saying what to install, where parquet and arrow files such as `path` cannot be read.
void require_table_library(const std::string& path);

// By the format that the file's name tells; JSON Lines that are one array are read as that.
std::unique_ptr<RecordReader> open_records(const std::string& path, FileFormat format);

}  // namespace tessera::data
