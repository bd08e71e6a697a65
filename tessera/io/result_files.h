// Which files of a folder belong to a result of this program: only these are ever removed.
#pragma once

#include <string>
#include <vector>

namespace tessera::io {

// Names in `folder` that no result has (a name below a folder of its own as "runs/notes"), sorted. Its
// checkpoints are a part of a result. A link is
// never a result's. Throws Storage when the folder cannot be read.
std::vector<std::string> foreign_files(const std::string& folder);

// Removes what a result consists of, except for the top-level names of `kept`, and then the folder, if it is
// empty. True where the folder is gone. Throws Storage.
bool remove_result(const std::string& folder, const std::vector<std::string>& kept = {});

// The same of one checkpoint's folder.
bool remove_checkpoint_files(const std::string& folder);

// Flushes every file and folder below `folder` to the disk. Throws Storage.
void sync_tree(const std::string& folder);

}  // namespace tessera::io
