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

  // Reads the next record; returns false at the end. Throws Error(Data) at file:line:column for a broken file
  // and Error(Storage) for a failed read.
  virtual bool next(RawRecord& record) = 0;
  // Skips the next `count` (at least 1) records, bad ones too. `line` and `offset` are those of the last of
  // them. Throws what next() throws, but not for records behind which it can go on.
  virtual void skip(int64_t count, int64_t line, int64_t offset);
  // Returns after next() has thrown whether the reader stands behind the bad record, so that next() may be
  // called again.
  virtual bool can_continue() const = 0;

  const ReadCounts& counts() const { return counts_; }

 protected:
  ReadCounts counts_;
};

// Opens a file of JSON Lines: each line is a record. Blank lines are counted, and CR before LF is dropped.
std::unique_ptr<RecordReader> open_json_lines(const std::string& path);
// Returns whether a file is one JSON array. Arrays are often saved under the name of JSON Lines, and no file
// of lines with an object each begins like one.
bool begins_with_array(const std::string& path);
// Opens a JSON file. Its records are the elements of one array, or a sequence of objects (pretty-printed or
// one a line), or the objects of the list that one object holds under a name such as "data" or "rows".
std::unique_ptr<RecordReader> open_json(const std::string& path);
// Opens a text file, which is one document. Its records are pieces of at most 8 MiB that end at line ends; a
// longer line is cut between characters.
std::unique_ptr<RecordReader> open_text(const std::string& path);
// Opens a table of text: each row is a record, with the names of the first row. Cells are texts; empty cells
// are null, unless they are quoted ("").
std::unique_ptr<RecordReader> open_csv(const std::string& path, char delimiter);
// Opens a parquet or arrow file, whose rows are the records. It holds some rows in memory; for an arrow file,
// one of its batches. Throws Error(Config) if the library for such files is missing
// (require_table_library()).
std::unique_ptr<RecordReader> open_table(const std::string& path);
// Throws Error(Config), saying what to install, where parquet and arrow files such as `path` cannot be read.
void require_table_library(const std::string& path);

// Opens a file by `format`; JSON Lines that are one array are read as JSON.
std::unique_ptr<RecordReader> open_records(const std::string& path, FileFormat format);

}  // namespace tessera::data
