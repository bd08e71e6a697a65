// A folder that takes the place of another.
#pragma once

#include <string>

namespace tessera::io {

// Renames the folder `from` to `to`. A folder that is there is replaced in one step, and then lies at `from`.
// If the file system cannot exchange two folders, the older folder is renamed to `aside` first and then lies
// there; a process killed between the two renames leaves it at `aside` alone. The caller removes the replaced
// folder. `aside` must not exist. Nothing is flushed. Throws Error(Storage); both folders are then where they
// were.
void place_folder(const std::string& from, const std::string& to, const std::string& aside);

// Renames `aside` back to `to` where place_folder() was killed between its two renames. Returns false where
// there is no `aside`, or `to` is there and not empty: `aside` is then what was replaced. Throws
// Error(Storage).
bool put_folder_back(const std::string& aside, const std::string& to);

}  // namespace tessera::io
