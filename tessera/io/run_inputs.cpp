#include "tessera/io/run_inputs.h"

#include <filesystem>
#include <utility>

namespace tessera::io {
namespace fs = std::filesystem;

std::optional<struct stat> status_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

bool is_folder(const std::string& path) {
  const auto status = status_of(path);
  return status && S_ISDIR(status->st_mode);
}

std::string resolved_path(const std::string& path) {
  std::error_code failed;
  fs::path whole = fs::absolute(path, failed);
  if (fs::path resolved = fs::weakly_canonical(whole, failed); !failed) whole = std::move(resolved);
  std::string text = whole.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool is_or_lies_in(const std::string& path, const std::string& folder) {
  if (path == folder || folder == "/" || (path.starts_with(folder) && path[folder.size()] == '/'))
    return true;
  const auto wanted = status_of(folder);
  if (!wanted) return false;
  for (fs::path part = path;; part = part.parent_path()) {
    const auto found = status_of(part);
    if (found && found->st_dev == wanted->st_dev && found->st_ino == wanted->st_ino) return true;
    if (part == part.parent_path()) return false;
  }
}

}  // namespace tessera::io
