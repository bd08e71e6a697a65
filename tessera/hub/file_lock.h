// A lock that one process at a time has, by flock() on a file, as Python's filelock does it too.
#pragma once

#include <string>

namespace tessera::hub {

class FileLock {
 public:
  // Waits for the lock, and says so if `told` is not empty: "waiting for another process that <told>". The
  // file is made, and stays. A file system that knows no locks gives none, which one warning tells. Throws
  // Storage where the file cannot be made.
  FileLock(const std::string& path, const std::string& told);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int descriptor_ = -1;
};

}  // namespace tessera::hub
