// Names what a run reads, and tells which paths lie in it.
#pragma once

#include <optional>
#include <string>
#include <sys/stat.h>

namespace tessera::io {

// Something that a run reads, and that its result must not replace.
struct ResultInput {
  std::string what;  // "the base model"
  std::string path;  // a file or a folder; not checked if empty, or if it does not exist (unless is_made)
  // The run reads all files of this folder, also those of a result below it, so the output folder must not
  // lie in it.
  bool reads_all = false;
  // The run makes this folder if it is missing, and leaves it there for the next run.
  bool is_made = false;
};

// Returns what stat() tells of the path, links followed; nothing if it tells nothing.
std::optional<struct stat> status_of(const std::string& path);

// Returns whether the path is a folder, or a link to one; false if there is nothing.
bool is_folder(const std::string& path);

// Makes a path absolute. Links are resolved as far as the path exists, before any ".." behind them; a slash
// at the end is taken off.
std::string resolved_path(const std::string& path);

// Returns whether `path` is `folder` or lies in it; both are resolved. They are compared by name, and by
// device and inode, since a folder may have several names (bind mounts, names in another case) and a file,
// too (hard links).
bool is_or_lies_in(const std::string& path, const std::string& folder);

}  // namespace tessera::io
