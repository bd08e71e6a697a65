#include "tessera/io/place_folder.h"

#include <cerrno>
#include <filesystem>

#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

namespace tessera::io {

void place_folder(const std::string& from, const std::string& to, const std::string& aside) {
  std::error_code ignored;
  // An empty folder needs no exchange: rename() replaces it.
  const bool replaces = exists(to) && !std::filesystem::is_empty(to, ignored);
  if (replaces && disk::exchange(from, to) == 0) return;
  if (replaces) {
    // An overlay file system gives EXDEV when the older folder lies in a lower layer.
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP && errno != EXDEV)
      throw storage_error(errno, "cannot replace the older folder", to);
    if (disk::rename(to, aside) != 0) throw storage_error(errno, "cannot move the older folder aside", to);
  }
  if (disk::rename(from, to) == 0) return;
  const int cause = errno;
  if (replaces) (void)disk::rename(aside, to);
  throw storage_error(cause, "cannot put the folder in place", to);
}

bool put_folder_back(const std::string& aside, const std::string& to) {
  std::error_code ignored;
  if (!exists(aside) || (exists(to) && !std::filesystem::is_empty(to, ignored))) return false;
  if (disk::rename(aside, to) != 0) throw storage_error(errno, "cannot put the older folder back", to);
  return true;
}

}  // namespace tessera::io
