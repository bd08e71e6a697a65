#include "tessera/data/readers/record_reader.h"

#include "tessera/core/error.h"

namespace tessera::data {

void RecordReader::skip(int64_t count, int64_t, int64_t) {
  RawRecord record;
  for (int64_t i = 0; i < count; ++i) {
    try {
      if (!next(record)) return;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Data || !can_continue()) throw;
    }
  }
}

std::unique_ptr<RecordReader> open_records(const std::string& path, FileFormat format) {
  switch (format) {
    case FileFormat::JsonLines: return begins_with_array(path) ? open_json(path) : open_json_lines(path);
    case FileFormat::Json: return open_json(path);
    case FileFormat::Text: return open_text(path);
    case FileFormat::Csv: return open_csv(path, ',');
    case FileFormat::Tsv: return open_csv(path, '\t');
    case FileFormat::Table: return open_table(path);
  }
  throw_internal(__FILE__, __LINE__, "format", "unknown file format");
}

}  // namespace tessera::data
