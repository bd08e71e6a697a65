#include "tessera/io/log_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

namespace tessera::io {

LogFile::LogFile(std::string path) : path_(std::move(path)) {
  descriptor_ = disk::open_new(path_, O_TRUNC);
  if (descriptor_ < 0) throw storage_error(errno, "cannot write", path_);
}

LogFile::~LogFile() { ::close(descriptor_); }

bool LogFile::append(std::string_view record) noexcept {
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

}  // namespace tessera::io
