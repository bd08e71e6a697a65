// Reads the bytes of a file from start to end, and decompresses gzip and Zstandard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::io {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Writes up to `room` (at least 1) bytes to `to` and returns their number, which is 0 only at the end. The
  // end is where the file ended when it was opened. Throws Error(Storage) naming the offset when a read
  // fails. Throws Error(Data, "COMPRESSED") when compressed data are damaged or end early; this error names
  // the line of the decompressed text and the byte offset in the file.
  virtual int64_t read(char* to, int64_t room) = 0;
  // Skips `bytes` bytes, or all that are left if they are fewer. Throws what read() throws.
  virtual void skip(int64_t bytes);
};

// Opens a file. Its first bytes decide whether it is decompressed, whatever its name. Several gzip members or
// Zstandard frames behind each other are one text. Memory use does not depend on the file: frames that ask
// for a window above 128 MiB are refused. Throws Error(Storage) for a file that is not regular or cannot be
// opened.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

}  // namespace tessera::io
