// Where a run of the program keeps its temporary files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::cli {

// A folder of this user alone in /dev/shm where the machine has it, or $TMPDIR, /tmp or /var/tmp. It is
// removed with this object; one whose process was killed is removed by the next object's constructor.
class SessionFolder {
 public:
  // `content` is what it is for, as errors say it. Throws Error(Storage) where no place can be written or has
  // `num_bytes` free; the text names each.
  SessionFolder(std::string_view content, int64_t num_bytes);
  ~SessionFolder();
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

}  // namespace tessera::cli
