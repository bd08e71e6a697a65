// A folder for temporary files, which goes with its object.
#pragma once

#include <string>

namespace tessera::io {

class TemporaryFolder {
 public:
  // Makes a folder in the one that TMPDIR names, or else the system's. `purpose` says what it is for. Throws
  // Error(Storage, "TEMPORARY").
  explicit TemporaryFolder(const std::string& purpose);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tessera::io
