// Where a job of several ranks keeps its temporary files.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::cli {

// A folder of this user alone, in memory where the machine has a file system for that (/dev/shm), else in
// $TMPDIR, /tmp or /var/tmp. It is removed with this object; one whose process was killed is removed by the
// next object's constructor.
class SessionFolder {
 public:
  // Throws Error(Storage) where no place can be written or has `num_bytes` free; the text names each.
  explicit SessionFolder(int64_t num_bytes);
  ~SessionFolder();
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

}  // namespace tessera::cli
