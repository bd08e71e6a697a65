#include <cstring>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/io/file_bytes.h"

namespace tessera::data {
namespace {

// A line that is too long is read to its end, so that the lines behind it can be read, but no further than
// this many bytes.
constexpr int64_t kMaxSkippedBytes = 16 * kMaxRecordBytes;

class JsonLinesReader : public RecordReader {
 public:
  explicit JsonLinesReader(const std::string& path) : bytes_(path) {
    counts_.byte_order_mark = bytes_.had_byte_order_mark();
  }

  bool next(RawRecord& record) override {
    while (read_line(record)) {
      if (record.text.find_first_not_of(" \t") != std::string::npos) return true;
      ++counts_.blank_lines;
    }
    return false;
  }

  void skip(int64_t, int64_t line, int64_t offset) override {
    bytes_.skip_to(offset);
    line_ = line - 1;
    RecordReader::skip(1, line, offset);
  }

  bool can_continue() const override { return !is_broken_; }

 private:
  // Reads a line without its end. Returns false at the end of the file.
  bool read_line(RawRecord& record) {
    if (is_broken_) return false;
    is_broken_ = true;  // stays so if reading throws below: it would throw again
    if (bytes_.peek().empty()) {
      is_broken_ = false;
      return false;
    }
    record = RawRecord{};
    record.line = ++line_;
    record.byte_offset = bytes_.offset();
    int64_t length = 0;
    bool ended = false, is_endless = false;
    while (!ended) {
      const std::string_view block = bytes_.peek();
      if (block.empty()) break;
      const void* newline = std::memchr(block.data(), '\n', block.size());
      ended = newline != nullptr;
      const size_t size =
          ended ? static_cast<size_t>(static_cast<const char*>(newline) - block.data()) : block.size();
      length += static_cast<int64_t>(size);
      is_endless = length > kMaxSkippedBytes;
      if (is_endless) break;
      if (length <= kMaxRecordBytes) record.text.append(block.data(), size);
      bytes_.consume(size + (ended ? 1 : 0));
    }
    is_broken_ = is_endless;
    if (!ended) counts_.missing_final_newline = true;
    if (length > kMaxRecordBytes) {
      throw Error(ErrorKind::Data, "LINE-TOO-LONG", "the line is too long")
          .at(bytes_.path(), line_)
          .got(std::string(is_endless ? "more than " : "") + format_bytes(length))
          .need("at most " + format_bytes(kMaxRecordBytes));
    }
    if (!record.text.empty() && record.text.back() == '\r') {
      record.text.pop_back();
      ++counts_.crlf_lines;
    }
    return true;
  }

  io::FileBytes bytes_;
  int64_t line_ = 0;
  bool is_broken_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> open_json_lines(const std::string& path) {
  return std::make_unique<JsonLinesReader>(path);
}

}  // namespace tessera::data
