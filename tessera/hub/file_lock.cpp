#include "tessera/hub/file_lock.h"

#include <cerrno>
#include <sys/file.h>

#include <unistd.h>

#include "tessera/core/log.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

namespace tessera::hub {
namespace {

int lock(int descriptor, int how) {
  int result = 0;
  do {
    result = ::flock(descriptor, how);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::string& told) {
  io::make_directories(io::parent_path(path));
  descriptor_ = io::disk::open_new(path, 0);
  if (descriptor_ < 0) throw io::storage_error(errno, "cannot open the lock", path);
  int result = lock(descriptor_, LOCK_EX | LOCK_NB);
  if (result != 0 && errno == EWOULDBLOCK) {
    if (!told.empty()) log::info("waiting for another process that " + told);
    result = lock(descriptor_, LOCK_EX);
  }
  if (result != 0) {
    log::warn("the file system of " + path +
              " does not support locks: do not let two processes download at once into " +
              "one cache (HF_HUB_CACHE names another)");
  }
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tessera::hub
