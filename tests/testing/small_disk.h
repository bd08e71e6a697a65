// A disk that a test may fill.
#pragma once

#include <filesystem>
#include <string>
#include <sys/mount.h>
#include <utility>

namespace tessera::testing {

// A small tmpfs, mounted at `path` if the tests may mount one.
class SmallDisk {
 public:
  SmallDisk(std::string path, const std::string& size) : path_(std::move(path)) {
    std::filesystem::create_directory(path_);
    is_mounted_ = mount("none", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (is_mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return is_mounted_; }

 private:
  std::string path_;
  bool is_mounted_ = false;
};

}  // namespace tessera::testing
