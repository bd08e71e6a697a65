// The bytes of a file from start to end, decompressed where it is gzip or Zstandard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::io {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Writes up to `room` (at least 1) bytes to `to` and returns how many; 0 only at the end. What is read ends
  // where the file ended when it was opened. Throws Error(Storage) naming the offset when a read fails, and
  // Error(Data, "COMPRESSED") at the line of the decompressed text, with the offset in the file, where
  // compressed data are damaged or end early.
  virtual int64_t read(char* to, int64_t room) = 0;
  // Passes over so many bytes, or all that are left. Throws what read() throws.
  virtual void skip(int64_t bytes);
};

// By the file's first bytes, whatever its name. Members and frames that follow each other are one text.
// Memory does not depend on the file: frames that ask for a window above 128 MiB are refused. Throws
// Error(Storage) for what is not a regular file or cannot be opened.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

}  // namespace tessera::io
