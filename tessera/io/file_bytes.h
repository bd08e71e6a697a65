// Buffered reading of a file of text from start to end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/io/byte_stream.h"

namespace tessera::io {

// Forward-only view of a file in blocks; gzip and Zstandard are decompressed, a UTF-8 byte order mark at the
// start is skipped.
class FileBytes {
 public:
  // Throws Error(Config) when there is no such file, Error(Storage) when it is not a regular file or cannot
  // be opened, Error(Data) when it starts with a UTF-16 or UTF-32 byte order mark.
  explicit FileBytes(const std::string& path);

  // Bytes read and not yet consumed; reads the next block when there are none. Empty only at the end of the
  // file. Throws Error(Storage) naming the offset when a read fails.
  std::string_view peek();
  void consume(size_t bytes);
  // Goes on at this offset(), at or behind the present one.
  void skip_to(int64_t offset);
  // Next byte, or -1 at the end.
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
