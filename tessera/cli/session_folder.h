// A folder for the temporary files of one run of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::cli {

// A folder that only this user can enter, in /dev/shm if the machine has it, else in $TMPDIR, /tmp or
// /var/tmp. It is removed with this object; the folder of a process that was killed is removed by a later
// object's constructor.
class SessionFolder {
 public:
  // `content` names the content in errors. Throws Error(Storage) if no place can be written and has
  // `num_bytes` free; the text names each place.
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
