// A folder that takes the place of another.
#pragma once

#include <string>

namespace tessera::io {

// Renames the folder `from` to `to`. A folder that is there is replaced in one step, and then lies at `from`,
// or at `aside` where the file system cannot exchange two folders: it is the caller's to remove, and a
// process killed in between leaves it at `aside` alone. `aside` must not exist. Nothing is flushed. Throws
// Error(Storage); both folders are then where they were.
void place_folder(const std::string& from, const std::string& to, const std::string& aside);

}  // namespace tessera::io
