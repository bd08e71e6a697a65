#include "tessera/train/reporters/run_logs.h"

#include <algorithm>

#include "tessera/core/log.h"
#include "tessera/io/file.h"

namespace tessera::train {

io::LogFile& RunLogs::open(const std::string& name) {
  const std::string path = io::join_path(folder_, name);
  io::make_directories(io::parent_path(path));
  return *files_.emplace_back(std::make_unique<io::LogFile>(path));
}

void RunLogs::append(io::LogFile& file, std::string_view record) {
  if (file.append(record) || has_warned_) return;
  has_warned_ = true;
  log::warn(file.path() + " cannot be written any more (disk full?); training goes on");
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
