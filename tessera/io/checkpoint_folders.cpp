#include "tessera/io/checkpoint_folders.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>

#include "tessera/core/log.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/io/place_folder.h"
#include "tessera/io/result_files.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kPartial = ".tessera-partial", kOld = ".tessera-old";

// Returns the step in the name of a checkpoint's folder, or -1 for any other name. The number must be written
// as a checkpoint's name has it, without leading zeros.
int64_t step_of(const std::string& name) {
  constexpr size_t kMaxDigits = 18;
  if (!name.starts_with(kPrefix)) return -1;
  const std::string digits = name.substr(kPrefix.size());
  if (digits.empty() || digits.size() > kMaxDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return -1;
  const int64_t step = std::stoll(digits);
  return std::to_string(step) == digits ? step : -1;
}

std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  if (!exists(folder)) return names;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    std::error_code ignored;
    if (fs::is_directory(entry->symlink_status(ignored))) names.push_back(entry->path().filename());
  }
  if (failed) throw storage_error(failed.value(), "cannot list the folder", folder);
  return names;
}

}  // namespace

std::vector<CheckpointFolder> list_checkpoints(const std::string& output_dir) {
  std::vector<CheckpointFolder> found;
  for (const std::string& name : folders_in(output_dir)) {
    if (const int64_t step = step_of(name); step >= 0) found.push_back({step, name});
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointFolder& a, const CheckpointFolder& b) { return a.step > b.step; });
  return found;
}

NewCheckpoint::NewCheckpoint(const std::string& output_dir, int64_t step)
    : output_dir_(output_dir),
      name_(std::string(kPrefix) + std::to_string(step)),
      staging_(join_path(output_dir, name_ + std::string(kPartial))) {
  make_directories(output_dir_);
  clear_partial_checkpoints(output_dir_);
  if (disk::make_folder(staging_) != 0) throw storage_error(errno, "cannot make the folder", staging_);
}

NewCheckpoint::~NewCheckpoint() {
  if (is_placed_) return;
  try {
    remove_checkpoint_files(staging_);
  } catch (const std::exception& error) {
    log::warn(std::string("an unfinished checkpoint stays: ") + error.what());
  }
}

void NewCheckpoint::commit() {
  sync_tree(staging_);
  const std::string path = join_path(output_dir_, name_);
  place_folder(staging_, path, path + std::string(kOld));
  is_placed_ = true;
  // The folder's new name must be on the disk before "latest" gives it.
  sync_directory(output_dir_);
  write_file_atomic(join_path(output_dir_, "latest"), name_ + "\n");
  // A replaced checkpoint of the same step now has the name of a partial or old one, and is removed.
  clear_partial_checkpoints(output_dir_);
}

bool is_partial_checkpoint(const std::string& name) {
  for (const std::string_view end : {kPartial, kOld}) {
    if (name.ends_with(end) && step_of(name.substr(0, name.size() - end.size())) >= 0) return true;
  }
  return false;
}

void put_checkpoints_back(const std::string& output_dir) {
  for (const std::string& name : folders_in(output_dir)) {
    const std::string own = name.substr(0, name.size() - std::min(name.size(), kOld.size()));
    const std::string old = join_path(output_dir, name), path = join_path(output_dir, own);
    // A folder without a manifest is the rest of a checkpoint that was being removed.
    if (!name.ends_with(kOld) || step_of(own) < 0 || !exists(join_path(old, "manifest.json"))) continue;
    if (put_folder_back(old, path)) log::info("the checkpoint of an earlier run is put back: " + path);
  }
}

void clear_partial_checkpoints(const std::string& output_dir) {
  put_checkpoints_back(output_dir);
  for (const std::string& name : folders_in(output_dir)) {
    if (is_partial_checkpoint(name)) remove_checkpoint_files(join_path(output_dir, name));
  }
}

void remove_checkpoint(const std::string& output_dir, const std::string& name) {
  const std::string path = join_path(output_dir, name), partial = path + std::string(kPartial);
  if (exists(partial)) remove_checkpoint_files(partial);
  if (disk::rename(path, partial) != 0) throw storage_error(errno, "cannot remove the checkpoint", path);
  remove_checkpoint_files(partial);
}

}  // namespace tessera::io
