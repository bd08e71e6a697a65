#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/io/file_bytes.h"

namespace tessera::data {
namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;

class TextReader : public RecordReader {
 public:
  explicit TextReader(const std::string& path) : bytes_(path) {
    counts_.byte_order_mark = bytes_.had_byte_order_mark();
  }

  bool next(RawRecord& record) override {
    fill();
    if (pending_.empty()) return false;
    record = RawRecord{};
    record.line = line_;
    record.byte_offset = offset_;
    record.begins_document = !started_;
    size_t size = pending_.size();
    if (!at_end_) {
      const size_t newline = pending_.rfind('\n');
      // A line longer than a piece is cut between characters.
      size = newline != std::string::npos ? newline + 1 : character_start(pending_.size() - 1);
    }
    record.text = pending_.substr(0, size);
    pending_.erase(0, size);
    fill();
    record.ends_document = pending_.empty();
    started_ = true;
    check(record);
    offset_ += static_cast<int64_t>(size);
    for (const char c : record.text) line_ += c == '\n' ? 1 : 0;
    return true;
  }

  bool can_continue() const override { return false; }

 private:
  void fill() {
    while (!at_end_ && pending_.size() < kPieceBytes) {
      const std::string_view block = bytes_.peek();
      if (block.empty()) {
        at_end_ = true;
        return;
      }
      if (offset_ < 0) offset_ = bytes_.offset();
      const size_t size = std::min(block.size(), kPieceBytes - pending_.size());
      pending_.append(block.data(), size);
      bytes_.consume(size);
    }
  }

  size_t character_start(size_t at) const {
    for (size_t back = 0; back < 4 && at > 0 && (static_cast<unsigned char>(pending_[at]) & 0xC0) == 0x80;
         ++back)
      --at;
    return at > 0 ? at : pending_.size();
  }

  void check(const RawRecord& record) const {
    int64_t bad = find_invalid_utf8(record.text);
    const char* what = "invalid UTF-8";
    if (const size_t nul = record.text.find('\0');
        nul != std::string::npos && (bad < 0 || static_cast<int64_t>(nul) < bad)) {
      bad = static_cast<int64_t>(nul);
      what = "a NUL byte";
    }
    if (bad < 0) return;
    int64_t line = record.line, line_start = 0;
    for (int64_t i = 0; i < bad; ++i) {
      if (record.text[static_cast<size_t>(i)] == '\n') {
        ++line;
        line_start = i + 1;
      }
    }
    throw Error(ErrorKind::Data, "ENCODING",
                std::string(what) + " at byte offset " + std::to_string(record.byte_offset + bad))
        .at(bytes_.path(), line, bad - line_start + 1)
        .need("UTF-8 text");
  }

  io::FileBytes bytes_;
  std::string pending_;
  int64_t line_ = 1, offset_ = -1;
  bool started_ = false, at_end_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> open_text(const std::string& path) {
  return std::make_unique<TextReader>(path);
}

}  // namespace tessera::data
