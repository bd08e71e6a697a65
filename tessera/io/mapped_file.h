// A file's bytes in memory that all processes of a machine share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io {

// A read-only mapping of a file. If the file shrinks or its disk fails while it is mapped, a process that
// touches the missing bytes ends with an E-STORAGE-MAPPED error that names file and byte, and with exit code
// 6. set_fault_end() replaces this end.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws Storage when the path cannot be opened or mapped, or is not a regular file.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // The bytes of the file. They begin at the start of a page.
  std::string_view bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  void swap(MappedFile& other) noexcept;

  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Sets what ends the process after such a fault. `end` is called in a signal handler with the error's line,
// and must end the process.
using FaultEnd = void (*)(const char* line, int exit_code);
void set_fault_end(FaultEnd end);

}  // namespace tessera::io
