// The lock of a file or folder that one process at a time holds, and that ends with the process.
#pragma once

#include <string>

namespace tessera::io {

enum class LockState {
  Taken,     // this descriptor holds the lock, until it and its copies are closed
  Busy,      // another one holds it
  Replaced,  // `path` names another file by now, or none: the lock is of no use
  Unknown,   // the file system knows no locks, or failed
};

// Tries to lock an open file or folder, which `path` named when it was opened, by flock(). Does not wait.
LockState take_lock(int descriptor, const std::string& path);

}  // namespace tessera::io
