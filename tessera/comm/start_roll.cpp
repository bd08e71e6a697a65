#include "tessera/comm/start_roll.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/environment.h"
#include "tessera/core/host_name.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"

namespace tessera::comm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = ".tessera-start-";
constexpr size_t kMostNamed = 16;

std::string list(const std::vector<std::string>& names) {
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNamed));
  std::string text = join({names.begin(), names.begin() + shown}, ", ");
  if (names.size() > kMostNamed) text += " and " + std::to_string(names.size() - kMostNamed) + " more";
  return text;
}

// Gives the nearest folder above `path` that there is.
fs::path folder_above(const std::string& path) {
  std::error_code failed;
  fs::path folder = fs::absolute(path, failed).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  folder = folder.parent_path();
  while (!fs::is_directory(folder, failed) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

// Removes the folders of jobs that were killed as they started, at least an hour ago.
void remove_left_behind(const fs::path& folder) {
  constexpr auto kOld = std::chrono::hours(1);
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    std::error_code unknown;
    const bool is_roll =
        entry->path().filename().string().starts_with(kPrefix) && entry->is_directory(unknown);
    if (!is_roll || fs::file_time_type::clock::now() - entry->last_write_time(unknown) < kOld || unknown)
      continue;
    fs::remove_all(entry->path(), unknown);
  }
}

}  // namespace

std::string launched_job() {
  std::string name;
  if (const auto space = environment::get("PMIX_NAMESPACE")) {
    name = *space;
  } else if (const auto job = environment::get("SLURM_JOB_ID"), step = environment::get("SLURM_STEP_ID");
             job && step) {
    name = *job + "." + *step;
  }
  // The name becomes part of a file's name.
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("/\\ \t\n").find(c) != std::string_view::npos; }, '-');
  return name;
}

StartRoll::StartRoll(const LaunchInfo& info, const std::string& place) : num_ranks_(info.size) {
  const std::string job = launched_job();
  if (job.empty() || place.empty()) return;
  const fs::path folder = folder_above(place) / (std::string(kPrefix) + job);
  remove_left_behind(folder.parent_path());
  std::error_code failed;
  fs::create_directory(folder, failed);
  folder_ = folder.string();
  file_ = (folder / std::to_string(info.rank)).string();
  // The file is renamed into place, so that a rank which looks at that moment sees it as a whole or not at
  // all.
  const std::string written = file_ + ".tmp";
  std::ofstream(written) << getpid() << ' ' << host_name() << '\n';
  fs::rename(written, file_, failed);
  if (failed) folder_.clear();
}

StartRoll::~StartRoll() {
  if (file_.empty()) return;
  std::error_code ignored;
  fs::remove(file_ + ".tmp", ignored);
  fs::remove(file_, ignored);
  // This removes the folder only for the last rank, as a folder with files is not removed.
  fs::remove(fs::path(file_).parent_path(), ignored);
}

void StartRoll::clear() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string StartRoll::text() const {
  if (folder_.empty()) return "";
  std::vector<std::string> absent, present, stuck;
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    std::ifstream file(folder_ + "/" + std::to_string(rank));
    int process = 0;
    std::string host;
    std::string name = "rank " + std::to_string(rank);
    if (!(file >> process >> host)) {
      absent.push_back(name);
      continue;
    }
    name += " (process " + std::to_string(process) + " on " + host;
    const ProcessStatus status = host == host_name() ? process_status(process) : ProcessStatus{'S', 1};
    if (status.is_stopped()) stuck.push_back(name + ", stopped)");
    if (status.is_gone() && process_status(getpid()).state != 0) stuck.push_back(name + ", which has ended)");
    present.push_back(name + ")");
  }
  std::string text;
  if (!absent.empty()) text = list(absent) + (absent.size() == 1 ? " has" : " have") + " not started";
  if (!stuck.empty()) text += (text.empty() ? "the start waits for " : "; it also waits for ") + list(stuck);
  if (text.empty()) text = "all have started, but cannot reach each other";
  return text + "; present are " + list(present);
}

}  // namespace tessera::comm
