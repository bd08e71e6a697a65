// That a streamed file is still the one that the run began with.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

// A file's size, and its first and last 64 KiB: of files that are too large to be read for it.
class FileMark {
 public:
  // Throws Error(Storage).
  explicit FileMark(const std::string& path);

  // Throws Error(Data, "CHANGED") where the file is another one now, and Error(Storage) where it is gone. One
  // whose time of change alone is another is the same file. Costs a look at the folder.
  void check();

  // The same for the same size and samples, whatever the path.
  const std::string& hash() const { return hash_; }

 private:
  std::string path_, identity_, hash_;
  int64_t size_ = 0;
};

}  // namespace tessera::data
