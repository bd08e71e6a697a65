// Buffered reading of a file of text from start to end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/io/byte_stream.h"

namespace tessera::io {

// Forward-only view of a file in blocks. Gzip and Zstandard are decompressed, and a UTF-8 byte order mark at
// the start is skipped.
class FileBytes {
 public:
  // Throws Error(Config) when there is no such file, Error(Storage) when it is not a regular file or cannot
  // be opened, Error(Data) when it starts with a UTF-16 or UTF-32 byte order mark.
  explicit FileBytes(const std::string& path);

  // Returns the bytes that have been read and not yet consumed, and reads the next block when there are none.
  // The view is empty only at the end of the file, and valid until the next call that reads. Throws what
  // ByteStream::read() throws.
  std::string_view peek();
  // Consumes the first `bytes` bytes of what peek() gave.
  void consume(size_t bytes);
  // Moves forward to `offset`, which is counted as offset() is. Does nothing if the file is already at
  // `offset` or behind it.
  void skip_to(int64_t offset);
  // Returns the next byte, or -1 at the end.
  int get();

  // Offset of the next byte in the file, or in its decompressed text.
  int64_t offset() const { return offset_; }
  const std::string& path() const { return path_; }
  bool had_byte_order_mark() const { return had_byte_order_mark_; }

 private:
  std::string path_;
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t offset_ = 0;
  bool had_byte_order_mark_ = false;
};

}  // namespace tessera::io
