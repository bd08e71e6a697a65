#include "tessera/io/leftovers.h"

#include <algorithm>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/log.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/io/take_lock.h"

namespace tessera::io {

std::vector<std::string> temporaries_of(const std::string& path) {
  const std::string start = std::filesystem::path(path).filename().string() + ".tmp.";
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(parent_path(path), error);
  for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    // <pid>-<number>
    const bool is_one = name.starts_with(start) && name.size() > start.size() &&
                        name.find_first_not_of("0123456789-", start.size()) == std::string::npos;
    std::error_code ignored;
    if (is_one && std::filesystem::is_regular_file(entry->symlink_status(ignored)))
      found.push_back(entry->path().string());
  }
  std::ranges::sort(found);
  return found;
}

void remove_leftovers(const std::string& path) {
  for (const std::string& temporary : temporaries_of(path)) {
    // Network file systems lock only what is open for writing.
    const int file = ::open(temporary.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;
    if (take_lock(file, temporary) == LockState::Taken && disk::remove_file(temporary) == 0)
      log::info("removed " + temporary + ", which a killed process had left");
    ::close(file);
  }
}

}  // namespace tessera::io
