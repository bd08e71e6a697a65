#include "tessera/io/result_folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sys/stat.h>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/host_name.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/io/place_folder.h"
#include "tessera/io/result_files.h"
#include "tessera/io/run_inputs.h"
#include "tessera/io/take_lock.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

// [Note: how a result takes its place] These names lie beside the final folder <path>:
//  - <path>.tessera-partial (staging_): the new result while it is written;
//  - <path>.tessera-old (aside_): the older result, between the two renames of a file system that cannot
//    exchange two folders;
//  - <path>.tessera-complete: a complete result that could not be put in place, which no run touches;
//  - <path>.tessera-lock: the lock of the run that writes here.
//
// commit() takes these steps:
//  1. All files in staging_ are flushed, so that their bytes are on the disk before the folder has its name.
//  2. The names that stay, such as checkpoints of this run, get the ending kStays in the older folder. The
//     ending says in whichever folder they are found later that they belong to the result.
//  3. place_folder() puts staging_ in the place of <path>. The older folder then lies at staging_, or at
//     aside_.
//  4. put_stays_back() moves the names that stay into <path>, and takes the ending off.
//  5. The rename is flushed, and the older folder is removed.
//
// A process may be killed behind any of them, and the constructor of the next run repairs the state while it
// holds the lock. Killed before step 3, <path> is the older result: the endings are taken off again. Killed
// between the two renames of step 3, there is no <path>: put_back() renames aside_ to it. Killed before step
// 4 has ended, <path> is the new result: the names that stay are moved out of the older folder. Only after
// that does begin() remove staging_ and aside_.

// Space that require_space() adds for the small files of a result.
constexpr int64_t kSideFileBytes = int64_t{1} << 20;
constexpr size_t kMaxListed = 5;
// Ending of the names that stay, while the new result takes its place. See [Note: how a result takes its
// place].
constexpr std::string_view kStays = ".tessera-stays";

std::string listed(const std::vector<std::string>& names) {
  const size_t count = std::min(names.size(), kMaxListed);
  const std::string text = join({names.begin(), names.begin() + static_cast<ptrdiff_t>(count)}, ", ");
  return count < names.size() ? text + " and " + std::to_string(names.size() - count) + " more" : text;
}

bool is_mount_point(const std::string& path) {
  struct statx status {};
  return ::statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE, &status) == 0 &&
         (status.stx_attributes_mask & status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    names.push_back(entry->path().filename());
  }
  if (failed) throw storage_error(failed.value(), "cannot list the folder", folder);
  std::sort(names.begin(), names.end());
  return names;
}

// Returns whether an earlier run has left this folder. Throws Error(Config) if the folder may not be cleared
// away.
bool is_left(const std::string& folder) {
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(folder, ignored);
  if (!fs::exists(status)) return false;
  if (!fs::is_directory(status)) {
    throw Error(ErrorKind::Config, "OUTPUT-FOREIGN",
                "a run needs this name for its own folder, but it is a link or a file")
        .in(folder)
        .hint("move it away");
  }
  std::vector<std::string> foreign = foreign_files(folder);
  // put_stays_back() moves these into the result that has taken the folder's place.
  std::erase_if(foreign, [](const std::string& name) { return name.ends_with(kStays); });
  if (foreign.empty()) return true;
  throw Error(ErrorKind::Config, "OUTPUT-FOREIGN",
              "the folder that an earlier run left contains files that do not belong to a result")
      .in(folder)
      .got(listed(foreign))
      .hint("move them away");
}

// Returns whether foreign_files() names something that lies in the folder itself, and not in a folder of a
// result.
bool is_at_top(const std::string& foreign) { return foreign.find('/') == std::string::npos; }

std::string own_name() { return "process " + std::to_string(::getpid()) + " on " + host_name(); }

void require_folder(const std::string& path, const std::string& given) {
  std::error_code ignored;
  const fs::file_status link = fs::symlink_status(path, ignored);
  if (fs::is_symlink(link)) throw storage_error(ENOENT, "the output folder is a link to nothing", given);
  if (fs::exists(link) && !fs::is_directory(link))
    throw storage_error(ENOTDIR, "cannot write a result", given);
}

}  // namespace

ResultFolder::ResultFolder(const std::string& path, ResultOptions options)
    : given_(path), path_(resolved_path(path)), options_(std::move(options)) {
  if (path.empty()) throw Error(ErrorKind::Config, "OUTPUT", "the output folder has no name");
  staging_ = path_ + ".tessera-partial";
  aside_ = path_ + ".tessera-old";
  lock_path_ = path_ + ".tessera-lock";
  require_folder(path_, given_);
  check_inputs(options_.inputs);
  make_directories(parent_path(path_));
  lock();
  try {
    // Called for its error alone: staging_ may not hold anything that begin() cannot clear away.
    (void)is_left(staging_);
    put_back();
    put_stays_back();
    put_checkpoints_back(path_);
    check_target();
  } catch (...) {
    unlock();
    throw;
  }
}

void ResultFolder::check_inputs(const std::vector<ResultInput>& inputs) const {
  for (const ResultInput& input : inputs) {
    if (input.path.empty() || (!input.is_made && !exists(input.path))) continue;
    const std::string read = resolved_path(input.path);
    const bool holds = is_or_lies_in(read, path_), lies_in = is_or_lies_in(path_, read);
    if (input.reads_all && lies_in && !holds && fs::is_directory(read)) {
      throw Error(ErrorKind::Config, "OUTPUT-INPUT",
                  "the output folder is inside the folder of " + input.what +
                      ", of which all files are read, so the result would be read too")
          .in(given_)
          .got(input.path)
          .hint("choose an output folder in another place");
    }
    if (!holds) continue;
    throw Error(ErrorKind::Config, "OUTPUT-INPUT",
                std::string(lies_in ? "the output folder is " : "the output folder contains ") + input.what +
                    ", which the result would replace")
        .in(given_)
        .got(input.path)
        .hint("name another output folder");
  }
}

ResultFolder::~ResultFolder() {
  if (has_begun_ && !is_placed_ && !keeps_all_) {
    try {
      if (!remove_result(staging_, kept_)) log::info("the logs of this run stay in " + staging_);
    } catch (const std::exception& error) {
      log::warn(std::string("an unfinished result stays: ") + error.what());
    }
  }
  unlock();
}

void ResultFolder::lock() {
  while (true) {
    lock_ = ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (lock_ < 0) {
      throw storage_error(errno, "cannot lock the output folder", lock_path_)
          .hint(
              "a result is written next to its folder and then put in place, so the parent folder must be "
              "writable");
    }
    const LockState state = take_lock(lock_, lock_path_);
    if (state == LockState::Taken) break;
    if (state == LockState::Unknown) {
      // Some cluster file systems know no locks. The run goes on without one.
      log::warn("the file system of " + given_ +
                " does not support locks: do not let two runs write to this folder at once");
      return;
    }
    char owner[320] = "";
    const ssize_t length = ::pread(lock_, owner, sizeof owner - 1, 0);
    ::close(std::exchange(lock_, -1));
    // The run that held the lock before has removed the file (unlock()), which is made anew.
    if (state == LockState::Replaced) continue;
    throw Error(ErrorKind::Config, "OUTPUT-LOCKED", "another run is writing to this output folder")
        .in(given_)
        .got(length > 0 ? owner : "a lock")
        .hint("wait for it, or name another output folder");
  }
  const std::string name = own_name();
  // The file's text is for the messages of other runs alone, so it is no error if it cannot be written.
  (void)!::ftruncate(lock_, 0);
  (void)!::pwrite(lock_, name.data(), name.size(), 0);
}

void ResultFolder::unlock() noexcept {
  if (lock_ < 0) return;
  // The file is removed while it is still locked: a run that has opened it and gets its lock notices that in
  // lock().
  ::unlink(lock_path_.c_str());
  ::close(std::exchange(lock_, -1));
}

// Puts a result back that a killed run had moved aside. If the file system cannot exchange two folders, a run
// may have been killed between its two renames: the older result is then in aside_ alone, even if an empty
// folder has been made in its place since.
void ResultFolder::put_back() {
  if (is_left(aside_) && put_folder_back(aside_, path_))
    log::info("the result of an earlier run is restored: " + given_);
}

// Moves the names that stay into path_, from whichever folder the exchange has brought them into, and takes
// the ending kStays off.
void ResultFolder::put_stays_back() {
  for (const std::string& folder : {path_, staging_, aside_}) {
    if (!exists(folder)) continue;
    for (const std::string& name : names_in(folder)) {
      if (!name.ends_with(kStays)) continue;
      const std::string home = join_path(path_, name.substr(0, name.size() - kStays.size()));
      if (exists(home)) continue;
      if (disk::rename(join_path(folder, name), home) != 0)
        throw storage_error(errno, "cannot move into the result", home);
    }
  }
}

// Returns whether files of others at the final place stay in the new result: they are no reason to lose a run
// that goes on from the checkpoints beside them.
bool ResultFolder::keeps_others() const {
  return options_.continues && exists(path_) && !list_checkpoints(path_).empty();
}

void ResultFolder::check_target() const {
  require_folder(path_, given_);
  if (!exists(path_)) return;
  if (is_mount_point(path_)) {
    throw Error(ErrorKind::Config, "OUTPUT-MOUNT",
                "the output folder is a mount point, which a rename cannot replace")
        .in(given_)
        .hint("name a folder inside it");
  }
  std::vector<std::string> names = names_in(path_);
  std::erase_if(names, is_partial_checkpoint);
  if (names.empty()) return;
  const bool has_checkpoints = !list_checkpoints(path_).empty();
  if (!options_.overwrites && !(options_.continues && has_checkpoints)) {
    const bool is_result = foreign_files(path_).empty();
    throw Error(ErrorKind::Config, "OUTPUT-USED",
                is_result ? "the output folder already contains a result" : "the output folder is not empty")
        .in(given_)
        .got(listed(names))
        .hint("name another folder" +
              (is_result ? ", or replace it with " + options_.how_to_overwrite : std::string()) +
              (is_result && has_checkpoints ? ", or resume from its checkpoints" : ""));
  }
  std::vector<std::string> foreign = foreign_files(path_);
  if (keeps_others()) std::erase_if(foreign, is_at_top);
  if (foreign.empty()) return;
  throw Error(ErrorKind::Config, "OUTPUT-FOREIGN",
              "the output folder contains files that do not belong to a result and would be lost")
      .in(given_)
      .got(listed(foreign))
      .hint("move them away, or name another output folder");
}

void ResultFolder::require_space(int64_t num_bytes) const {
  const std::string parent = parent_path(path_);
  const int64_t free = free_space(parent);
  // Blocks and the file system's own records take a little more than the bytes.
  const int64_t needed = num_bytes / 100 > INT64_MAX - kSideFileBytes - num_bytes
                             ? INT64_MAX
                             : num_bytes + num_bytes / 100 + kSideFileBytes;
  if (free >= needed) return;
  throw Error(ErrorKind::Storage, "NO-SPACE", "the result does not fit on the disk")
      .in(parent)
      .got(format_bytes(free) + " free")
      .need(format_bytes(needed))
      .hint(exists(path_) ? "an older result stays until the new one is complete" : "");
}

void ResultFolder::begin() {
  TESSERA_ASSERT(!has_begun_, "a result is begun once");
  put_back();
  check_target();
  // This comes after put_back(), before which aside_ may be the only result.
  if (is_left(aside_)) remove_result(aside_);
  if (is_left(staging_)) remove_result(staging_);
  if (disk::make_folder(staging_) != 0) throw storage_error(errno, "cannot make the folder", staging_);
  has_begun_ = true;
}

void ResultFolder::commit(const std::vector<std::string>& stays) {
  TESSERA_ASSERT(has_begun_ && !is_placed_, "a result is committed once, after begin()");
  // The result is complete from here on: the destructor must not remove it.
  keeps_all_ = true;
  if (!stays.empty()) set_continues();
  try {
    sync_tree(staging_);
    check_target();
    std::vector<std::string> names = stays;
    if (keeps_others()) std::ranges::copy_if(foreign_files(path_), std::back_inserter(names), is_at_top);
    for (const std::string& name : names) {
      const std::string path = join_path(path_, name);
      std::error_code ignored;
      const bool is_there = fs::exists(fs::symlink_status(path, ignored));  // a link that leads nowhere, too
      if (is_there && disk::rename(path, path + std::string(kStays)) != 0)
        throw storage_error(errno, "cannot move into the result", path);
    }
    place();
    put_stays_back();
  } catch (Error& error) {
    if (is_placed_) {
      error.within(
          "the result is in place, but not all files that should stay in it; the next run moves them back");
      throw;
    }
    try {
      put_stays_back();
    } catch (const std::exception& other) {
      log::warn(other.what());
    }
    const bool is_safe = keep_complete();
    error.within("the result is complete but cannot be put in place; it stays in " + staging_ +
                 (is_safe ? "" : ", which the next run deletes unless you move it"));
    throw;
  }
  try {
    // The result is in place, so a failure from here on is only a warning. The rename is made durable before
    // the older result is removed.
    sync_directory(path_);
    sync_directory(parent_path(path_));
    for (const std::string& older : {staging_, aside_}) {
      if (is_left(older)) remove_result(older);
    }
  } catch (const std::exception& error) {
    log::warn(std::string("the result is in place, but the files that it replaced could not be deleted: ") +
              error.what());
  }
}

void ResultFolder::place() {
  const auto older = status_of(path_);
  if (older) {
    // The new folder gets the older one's permissions where that works.
    (void)::chmod(staging_.c_str(), older->st_mode & 07777);
  }
  place_folder(staging_, path_, aside_);
  is_placed_ = true;
}

// Gives a result that cannot be put in place a name that no run clears away. Returns false if that fails too.
bool ResultFolder::keep_complete() {
  const std::string first = path_ + ".tessera-complete";
  std::string kept = first;
  std::error_code ignored;
  for (int number = 2; fs::exists(fs::symlink_status(kept, ignored)); ++number)
    kept = first + "-" + std::to_string(number);
  if (disk::rename(staging_, kept) != 0) return false;
  staging_ = kept;
  return true;
}

}  // namespace tessera::io
