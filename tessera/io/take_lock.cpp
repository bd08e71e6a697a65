#include "tessera/io/take_lock.h"

#include <cerrno>
#include <sys/file.h>
#include <sys/stat.h>

namespace tessera::io {

LockState take_lock(int descriptor, const std::string& path) {
  int locked = 0;
  do {
    locked = ::flock(descriptor, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0) return errno == EWOULDBLOCK ? LockState::Busy : LockState::Unknown;
  // Who held the lock before may have removed the file between our open() and flock(). We then hold the lock
  // of a file that nobody else will open.
  struct stat held {
  }, named{};
  const bool is_named = ::fstat(descriptor, &held) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                        held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  return is_named ? LockState::Taken : LockState::Replaced;
}

}  // namespace tessera::io
