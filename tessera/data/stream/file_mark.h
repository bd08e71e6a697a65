// Checks that a streamed file is still the one with which the run began.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

// A file's size, and a hash of the size and of its first and last 64 KiB, for files that are too large to be
// read for a check.
class FileMark {
 public:
  // Throws Error(Storage).
  explicit FileMark(const std::string& path);

  // Throws Error(Data, "CHANGED") if the file is another one now, and Error(Storage) if it is gone. A file
  // with the same size and samples is the same, even if its times or its inode are others. Costs a look at
  // the folder, unless these have changed.
  void check();

  // Hash of the size and the samples, whatever the path.
  const std::string& hash() const { return hash_; }

 private:
  std::string path_, identity_, hash_;
  int64_t size_ = 0;
};

}  // namespace tessera::data
