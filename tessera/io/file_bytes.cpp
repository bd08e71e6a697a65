#include "tessera/io/file_bytes.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

}  // namespace

FileBytes::FileBytes(const std::string& path) : path_(path), buffer_(kBlockBytes) {
  if (!exists(path)) throw Error(ErrorKind::Config, "NO-FILE", "there is no such file").in(path);
  stream_ = open_byte_stream(path);

  const std::string_view head = peek();
  if (head.substr(0, 3) == "\xEF\xBB\xBF") {
    consume(3);
    had_byte_order_mark_ = true;
  } else if (head.substr(0, 2) == "\xFF\xFE" || head.substr(0, 2) == "\xFE\xFF") {
    throw Error(ErrorKind::Data, "ENCODING", "the file is UTF-16 or UTF-32").at(path, 1, 1).need("UTF-8");
  }
}

std::string_view FileBytes::peek() {
  if (begin_ == end_) {
    begin_ = 0;
    end_ = static_cast<size_t>(stream_->read(buffer_.data(), static_cast<int64_t>(buffer_.size())));
  }
  return {buffer_.data() + begin_, end_ - begin_};
}

void FileBytes::consume(size_t bytes) {
  begin_ += bytes;
  offset_ += static_cast<int64_t>(bytes);
}

void FileBytes::skip_to(int64_t offset) {
  const int64_t buffered = std::min(offset - offset_, static_cast<int64_t>(end_ - begin_));
  consume(static_cast<size_t>(std::max<int64_t>(buffered, 0)));
  if (offset <= offset_) return;
  stream_->skip(offset - offset_);
  offset_ = offset;
}

int FileBytes::get() {
  if (begin_ == end_ && peek().empty()) return -1;
  ++offset_;
  return static_cast<unsigned char>(buffer_[begin_++]);
}

}  // namespace tessera::io
