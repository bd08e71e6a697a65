// Tells which files of a folder belong to a result of this program: only these are ever removed.
#pragma once

#include <string>
#include <vector>

namespace tessera::io {

// Returns the names in `folder` that no result has, sorted. A name below a folder of a result is given as
// "runs/notes". The checkpoints of a result are a part of it. A link never belongs to a result. Throws
// Storage when the folder cannot be read.
std::vector<std::string> foreign_files(const std::string& folder);

// Removes the files that a result consists of, except for those under the top-level names `kept`, and then
// the folder, if it is empty. Returns whether the folder is gone. Throws Storage.
bool remove_result(const std::string& folder, const std::vector<std::string>& kept = {});

// Does the same for the folder of one checkpoint.
bool remove_checkpoint_files(const std::string& folder);

// Name of the folder, inside that of a result, to which set_result_aside() moves.
inline constexpr const char* kOlderResult = "older-result";
// Moves what belongs to a result, but not the checkpoints, into the folder kOlderResult inside `folder`, so
// that nobody takes it for the result of the checkpoints beside it. Returns whether anything was moved.
// Throws Storage.
bool set_result_aside(const std::string& folder);

// Flushes every file and folder below `folder` to the disk. Throws Storage.
void sync_tree(const std::string& folder);

}  // namespace tessera::io
