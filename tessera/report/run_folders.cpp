#include "tessera/report/run_folders.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <string_view>
#include <system_error>

#include "tessera/io/checkpoint_folders.h"

namespace tessera::report {

namespace fs = std::filesystem;

bool has_metrics(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kMetrics, ignored);
}

io::File open_run_file(const std::string& path) {
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) throw io::storage_error(ELOOP, "open", path);
  return io::File::open(path);
}

std::string output_of(std::string folder) {
  if (folder.ends_with(kUnfinished)) folder.resize(folder.size() - std::string_view(kUnfinished).size());
  return folder;
}

std::vector<int64_t> checkpoints_of(const std::string& output, int64_t last) {
  std::vector<int64_t> steps;
  for (const io::CheckpointFolder& found : io::list_checkpoints(output)) {
    if (found.step <= last) steps.push_back(found.step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path without_end(const std::string& given) {
  const fs::path folder = fs::path(given).lexically_normal() / "";
  return folder.parent_path().empty() ? folder : folder.parent_path();
}

std::vector<std::string> short_names(const std::vector<fs::path>& paths) {
  std::vector<std::string> names;
  for (size_t count = 1; count < 32; ++count) {
    names.clear();
    for (const fs::path& path : paths) {
      const std::vector<fs::path> parts(path.begin(), path.end());
      fs::path name;
      for (size_t i = parts.size() - std::min(count, parts.size()); i < parts.size(); ++i) name /= parts[i];
      names.push_back(name);
    }
    if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) break;
  }
  return names;
}

}  // namespace tessera::report
