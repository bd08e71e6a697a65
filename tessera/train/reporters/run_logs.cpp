#include "tessera/train/reporters/run_logs.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"

namespace tessera::train {

io::LogFile& RunLogs::open(const std::string& name, const std::string& kept_as) {
  const std::string path = io::join_path(folder_, name);
  io::make_directories(io::parent_path(path));
  io::LogFile& file = *files_.emplace_back(std::make_unique<io::LogFile>(path));
  kept_as_.push_back(kept_as);
  if (const auto kept = kept_.find(kept_as); kept != kept_.end()) append(file, kept->second);
  return file;
}

std::vector<std::pair<std::string, std::string>> RunLogs::contents() const {
  std::vector<std::pair<std::string, std::string>> contents;
  for (size_t i = 0; i < files_.size(); ++i) contents.emplace_back(kept_as_[i], files_[i]->text());
  return contents;
}

std::string RunLogs::kept_name(const std::string& prefix) const {
  const auto found = kept_.lower_bound(prefix);
  return found != kept_.end() && found->first.starts_with(prefix) ? found->first : "";
}

std::string RunLogs::kept(const std::string& name) const {
  const auto found = kept_.find(name);
  return found == kept_.end() ? "" : found->second;
}

void RunLogs::append(io::LogFile& file, std::string_view record) {
  if (!file.append(record)) warn(file.path());
}

bool RunLogs::write(const std::string& name, std::string_view bytes) {
  const std::string path = io::join_path(folder_, name);
  try {
    io::make_directories(io::parent_path(path));
    io::write_file_atomic(path, bytes);
    return true;
  } catch (const Error&) {
    warn(path);
    return false;
  }
}

void RunLogs::warn(const std::string& path) {
  if (has_warned_) return;
  has_warned_ = true;
  log::warn(path + " can no longer be written (disk full?); training continues");
}

bool RunLogs::put_back() {
  if (std::ranges::all_of(files_, [](const auto& file) { return file->is_in_place(); })) return false;
  for (const auto& file : files_) {
    io::make_directories(io::parent_path(file->path()));
    file->put_back();
  }
  return true;
}

}  // namespace tessera::train
