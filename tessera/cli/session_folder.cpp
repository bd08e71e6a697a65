#include "tessera/cli/session_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/take_lock.h"

namespace tessera::cli {
namespace {

constexpr char kPrefix[] = "tessera-job-";

// Locks a session's folder and returns the lock, or -1 if another process holds it or has removed the folder.
// A process holds its folder's lock as long as it lives, so whoever gets the lock knows that nobody uses the
// folder.
int take_lock(const std::string& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0 || io::take_lock(file, folder) == io::LockState::Taken) return file;
  close(file);
  return -1;
}

// Removes this user's session folders that no process holds.
void remove_left_behind(const std::string& place) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(place, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string path = entry->path().string();
    struct stat status = {};
    if (entry->path().filename().string().rfind(kPrefix, 0) != 0 || lstat(path.c_str(), &status) != 0 ||
        !S_ISDIR(status.st_mode) || status.st_uid != geteuid())
      continue;
    const int lock = take_lock(path);
    if (lock < 0) continue;
    std::error_code unremoved;
    std::filesystem::remove_all(path, unremoved);
    close(lock);
  }
}

std::vector<std::string> places() {
  std::vector<std::string> found = {"/dev/shm"};
  if (const auto named = environment::get("TMPDIR")) found.push_back(*named);
  found.insert(found.end(), {"/tmp", "/var/tmp"});
  return found;
}

}  // namespace

SessionFolder::SessionFolder(std::string_view content, int64_t num_bytes) {
  std::vector<std::string> refused;
  for (const std::string& place : places()) {
    remove_left_behind(place);
    std::error_code no_space;
    const auto space = std::filesystem::space(place, no_space);
    if (!no_space && static_cast<int64_t>(space.available) < num_bytes) {
      refused.push_back(place + " (" + format_bytes(static_cast<int64_t>(space.available)) + " free)");
      continue;
    }
    // Until it is locked, another start may take the new folder for one that was left behind, and remove it:
    // then a further one is made.
    constexpr int kTries = 100;
    std::string why = "a folder in it cannot be locked";
    for (int i = 0; i < kTries; ++i) {
      std::string pattern = place + "/" + kPrefix + "XXXXXX";
      if (mkdtemp(pattern.data()) == nullptr) {
        why = std::strerror(errno);
        break;
      }
      path_ = std::filesystem::absolute(pattern).string();
      lock_ = take_lock(path_);
      if (lock_ >= 0) return;
      rmdir(path_.c_str());
    }
    refused.push_back(place + " (" + why + ")");
  }
  throw Error(ErrorKind::Storage, "TEMPORARY", "no place for " + std::string(content))
      .got(join(refused, ", "))
      .need(format_bytes(num_bytes) + " in a folder that can be written")
      .hint("set TMPDIR to such a folder");
}

SessionFolder::~SessionFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace tessera::cli
