#include "tessera/io/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/strings.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/take_lock.h"

namespace tessera::io {
namespace {

// One system call moves at most this much: the kernel's own limit is a little under 2 GiB.
constexpr int64_t kMaxTransfer = int64_t{1} << 30;
// A write of at least this many bytes is sent on to the disk at once; see AtomicFile::write_at().
constexpr int64_t kEarlyWrite = int64_t{1} << 20;

std::string_view cause_name(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: return "NO-SPACE";
    case EACCES:
    case EPERM: return "PERMISSION";
    case EROFS: return "READ-ONLY";
    case EIO: return "IO";
    case ENOENT: return "NOT-FOUND";
    case ENOTDIR: return "NOT-A-DIRECTORY";
    case EISDIR: return "IS-A-DIRECTORY";
    case EMFILE:
    case ENFILE: return "TOO-MANY-FILES";
    case EFBIG: return "TOO-LARGE";
    case ELOOP: return "LINK-LOOP";
    case EEXIST: return "EXISTS";
    default: return "SYSTEM";
  }
}

template <typename Call>
auto retry_interrupted(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

int close_descriptor(int& descriptor) {
  const int closing = std::exchange(descriptor, -1);
  // An interrupted close has closed the descriptor on Linux: calling again could close another one.
  return ::close(closing) == 0 || errno == EINTR ? 0 : -1;
}

void refuse_irregular(const struct stat& status, const std::string& path) {
  if (S_ISREG(status.st_mode)) return;
  if (S_ISDIR(status.st_mode)) throw storage_error(EISDIR, "cannot read", path);
  const char* kind = S_ISFIFO(status.st_mode) ? "a pipe" : S_ISSOCK(status.st_mode) ? "a socket" : "a device";
  throw Error(ErrorKind::Storage, "NOT-A-FILE", "not a regular file")
      .in(path)
      .got(kind)
      .need("a file on a disk, whose size is known");
}

std::string at_byte(const std::string& path, int64_t offset) {
  return path + ": byte " + std::to_string(offset);
}

}  // namespace

Error storage_error(int error_number, std::string_view action, const std::string& path) {
  Error error(ErrorKind::Storage, cause_name(error_number),
              std::string(action) + ": " + std::generic_category().message(error_number));
  error.in(path);
  return error;
}

File File::open(const std::string& path) {
  File file;
  file.path_ = path;
  struct stat status {};
  // The file is looked at before it is opened: a device may act on being opened, a socket cannot be opened,
  // and a pipe has no end of its own.
  if (::stat(path.c_str(), &status) == 0) refuse_irregular(status, path);
  // The path may name another file by now. O_NONBLOCK keeps open() from waiting for the writer of a pipe, and
  // has no effect on regular files; fstat() then looks at the file that was really opened.
  file.descriptor_ =
      retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (file.descriptor_ < 0) throw storage_error(errno, "cannot open", path);
  if (::fstat(file.descriptor_, &status) != 0) throw storage_error(errno, "cannot inspect", path);
  refuse_irregular(status, path);
  file.size_ = status.st_size;
  return file;
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) close_descriptor(descriptor_);
}

void File::read_at(int64_t offset, void* destination, int64_t num_bytes) const {
  TESSERA_ASSERT(offset >= 0 && num_bytes >= 0, "negative range in a read of " + path_);
  auto* out = static_cast<char*>(destination);
  while (num_bytes > 0) {
    const int64_t got = disk::read(descriptor_, path_, out, std::min(num_bytes, kMaxTransfer), offset);
    if (got < 0) throw storage_error(errno, "cannot read", at_byte(path_, offset));
    if (got == 0) {
      throw Error(ErrorKind::Storage, "SHORT-READ", "the file ends before the bytes that are needed")
          .in(at_byte(path_, offset))
          .need(std::to_string(num_bytes) + " more bytes")
          .hint("it had " + std::to_string(size_) + " bytes when it was opened");
    }
    out += got;
    offset += got;
    num_bytes -= got;
  }
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  const File file = File::open(path);
  if (file.size() > max_bytes) {
    throw Error(ErrorKind::Storage, "TOO-LARGE", "the file is larger than the limit for such files")
        .in(path)
        .got(format_bytes(file.size()))
        .need("at most " + format_bytes(max_bytes));
  }
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, bytes.data(), file.size());
  return bytes;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<uint64_t> counter{0};
  struct stat status {};
  const bool replaces = ::stat(path_.c_str(), &status) == 0;
  if (replaces && S_ISDIR(status.st_mode)) throw storage_error(EISDIR, "cannot write", path_);
  // The rename in commit() would put a plain file in the place of a device or a pipe.
  if (replaces && !S_ISREG(status.st_mode)) {
    throw Error(ErrorKind::Storage, "NOT-A-FILE", "cannot write: neither a regular file nor a new one")
        .in(path_);
  }
  constexpr int kMostLocks = 100;  // a file system may say of every lock that another process has it
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    // A killed process with the same number may have left a file of this name: O_EXCL then refuses, and the
    // next number is tried.
    temporary_path_ = path_ + ".tmp." + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    descriptor_ = disk::open_new(temporary_path_, O_EXCL);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    if (descriptor_ < 0) throw storage_error(errno, "cannot create", path_);
    // The lock tells others that this process lives. Until it is taken, remove_leftovers() of another process
    // may take the new file for one that was left: then a further one is made.
    const bool is_busy = take_lock(descriptor_, temporary_path_) == LockState::Busy;
    if (attempt >= kMostLocks || (!is_busy && exists(temporary_path_))) break;
    close_descriptor(descriptor_);
    disk::remove_file(temporary_path_);
  }
  // The new file gets the old one's permissions where that works: some file systems cannot set them.
  if (replaces) (void)disk::change_mode(descriptor_, temporary_path_, status.st_mode & 0777);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) close_descriptor(descriptor_);
  if (!temporary_path_.empty()) disk::remove_file(temporary_path_);
  temporary_path_.clear();
}

void AtomicFile::reserve(int64_t num_bytes) {
  TESSERA_ASSERT(num_bytes >= 0, "negative size for " + path_);
  if (num_bytes == 0) return;
  if (disk::allocate(descriptor_, temporary_path_, num_bytes) == 0) return;
  int cause = errno;
  if (cause == EOPNOTSUPP || cause == ENOSYS || cause == EINVAL) {
    // This file system cannot reserve space: the free space is compared instead, and the file is left sparse.
    cause = free_space(parent_path(path_)) < num_bytes ? ENOSPC : 0;
    if (cause == 0 && disk::truncate(descriptor_, temporary_path_, num_bytes) != 0) cause = errno;
    if (cause == 0) return;
  }
  throw storage_error(cause, "cannot reserve " + format_bytes(num_bytes), path_);
}

void AtomicFile::write_at(int64_t offset, const void* data, int64_t num_bytes) {
  TESSERA_ASSERT(descriptor_ >= 0, "write after commit to " + path_);
  TESSERA_ASSERT(offset >= 0 && num_bytes >= 0, "negative range in a write to " + path_);
  const auto* from = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const int64_t put =
        disk::write(descriptor_, temporary_path_, from, std::min(num_bytes, kMaxTransfer), offset);
    // A write of nothing would loop for ever; no disk does that for a good reason.
    if (put <= 0) throw storage_error(put < 0 ? errno : EIO, "cannot write", at_byte(path_, offset));
    // Large files go to the disk while they are written, so that the flush at the end has little left to wait
    // for.
    if (put >= kEarlyWrite) (void)::sync_file_range(descriptor_, offset, put, SYNC_FILE_RANGE_WRITE);
    from += put;
    offset += put;
    num_bytes -= put;
  }
}

void AtomicFile::append(const void* data, int64_t num_bytes) {
  write_at(append_offset_, data, num_bytes);
  append_offset_ += num_bytes;
}

// [Note: a file appears at once] The order of these steps matters. The data are flushed before the rename:
// else, after a power failure, `path` could name a file whose bytes never reached the disk. close() comes
// before the rename as well, since it may still report a failed write. The rename puts the new file in the
// place of the old one in one step, so readers see one of the two. The folder is flushed last, which makes
// the rename itself durable; if that fails, the new file is in place, and there is no temporary left to
// remove.
void AtomicFile::commit() {
  TESSERA_ASSERT(descriptor_ >= 0, "second commit of " + path_);
  if (disk::flush(descriptor_, temporary_path_) != 0) {
    throw storage_error(errno, "cannot flush to disk", path_);
  }
  // A copy of the descriptor keeps the lock until the file has its name, so that nobody takes it for a
  // leftover.
  const int lock = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  const char* failed = nullptr;
  if (close_descriptor(descriptor_) != 0) {
    failed = "cannot close";
  } else if (disk::rename(temporary_path_, path_) != 0) {
    failed = "cannot rename the finished file";
  }
  const int cause = errno;
  if (lock >= 0) ::close(lock);
  if (failed != nullptr) throw storage_error(cause, failed, path_);
  temporary_path_.clear();
  sync_directory(parent_path(path_));
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.append(bytes);
  file.commit();
}

void make_directories(const std::string& path) {
  size_t end = 0;
  while (end < path.size()) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string part = path.substr(0, end);
    struct stat status {};
    if (::stat(part.c_str(), &status) == 0) {
      if (!S_ISDIR(status.st_mode)) throw storage_error(ENOTDIR, "cannot make the folder " + path, part);
      continue;
    }
    // Another process may make the folder at the same moment (EEXIST); whether it is a folder shows on the
    // next round or when it is used.
    if (disk::make_folder(part) != 0 && errno != EEXIST) {
      throw storage_error(errno, "cannot make the folder", part);
    }
  }
}

void remove_file(const std::string& path) {
  if (disk::remove_file(path) != 0 && errno != ENOENT) throw storage_error(errno, "cannot remove", path);
}

void sync_directory(const std::string& path) {
  int descriptor =
      retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) throw storage_error(errno, "cannot open the folder", path);
  const int failed = disk::flush(descriptor, path) != 0 ? errno : 0;
  close_descriptor(descriptor);
  // Some network file systems cannot flush a folder and say so; there is nothing more to do there.
  if (failed != 0 && failed != EINVAL && failed != EOPNOTSUPP) {
    throw storage_error(failed, "cannot flush the folder to disk", path);
  }
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

std::vector<std::string> list_files(const std::string& folder, std::string_view suffix) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  if (!exists(folder)) return names;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    std::error_code ignored;
    std::string name = entry->path().filename();
    if (name.ends_with(suffix) && entry->is_regular_file(ignored)) names.push_back(std::move(name));
  }
  if (failed) throw storage_error(failed.value(), "cannot list the folder", folder);
  std::sort(names.begin(), names.end());
  return names;
}

int64_t free_space(const std::string& path) {
  std::string probe = path.empty() ? "." : path;
  struct statvfs status {};
  // An interrupted call is repeated; a path that does not exist yet is replaced by its parent.
  while (::statvfs(probe.c_str(), &status) != 0) {
    const int cause = errno;
    const std::string parent = parent_path(probe);
    if ((cause != ENOENT && cause != EINTR) || (cause == ENOENT && parent == probe)) {
      throw storage_error(cause, "cannot ask for the free space", probe);
    }
    if (cause == ENOENT) probe = parent;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(status.f_bavail, status.f_frsize, &bytes)) {
    return std::numeric_limits<int64_t>::max();
  }
  return bytes;
}

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty() || (!name.empty() && name.front() == '/')) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::string parent_path(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  if (last == std::string::npos) return path.empty() ? "." : "/";
  const size_t slash = path.rfind('/', last);
  if (slash == std::string::npos) return ".";
  const size_t end = path.find_last_not_of('/', slash);
  return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

}  // namespace tessera::io
