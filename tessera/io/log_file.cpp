#include "tessera/io/log_file.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <sys/stat.h>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"
#include "tessera/io/take_lock.h"

namespace tessera::io {

LogFile::LogFile(std::string path, OldRecords old) : path_(std::move(path)) {
  descriptor_ = disk::open_new(path_, old == OldRecords::Emptied ? O_TRUNC : 0);
  if (descriptor_ < 0) throw storage_error(errno, "cannot write", path_);
  if (old == OldRecords::Emptied) return;
  if (const LockState state = take_lock(descriptor_, path_);
      state == LockState::Busy || state == LockState::Replaced) {
    ::close(std::exchange(descriptor_, -1));
    throw Error(ErrorKind::Config, "OUTPUT-LOCKED", "another run is writing to this file").in(path_);
  }
  size_ = File::open(path_).size();
}

LogFile::~LogFile() { ::close(descriptor_); }

bool LogFile::append(std::string_view record) noexcept {
  // A part of an earlier record that failed must be gone before this one is written behind the whole ones.
  if (has_rest_ && disk::truncate(descriptor_, path_, size_) != 0) return false;
  has_rest_ = false;
  int64_t done = 0;
  const auto size = static_cast<int64_t>(record.size());
  while (done < size) {
    const int64_t put = disk::write(descriptor_, path_, record.data() + done, size - done, size_ + done);
    if (put <= 0) {
      has_rest_ = done > 0 && disk::truncate(descriptor_, path_, size_) != 0;
      return false;
    }
    done += put;
  }
  size_ += size;
  return true;
}

void LogFile::cut(int64_t size) {
  if (disk::truncate(descriptor_, path_, size) != 0) throw storage_error(errno, "cannot shorten", path_);
  size_ = size;
}

bool LogFile::is_in_place() const {
  struct stat mine {
  }, named{};
  return ::fstat(descriptor_, &mine) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

std::string LogFile::text() const {
  // The open file lives on when its name is removed, and can be opened again by its descriptor.
  std::string text = read_file("/proc/self/fd/" + std::to_string(descriptor_), INT64_MAX);
  text.resize(std::min(text.size(), static_cast<size_t>(size_)));
  return text;
}

void LogFile::put_back() const {
  if (!is_in_place()) write_file_atomic(path_, text());
}

}  // namespace tessera::io
