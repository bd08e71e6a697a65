#include "tessera/data/stream/file_mark.h"

#include <algorithm>
#include <cerrno>
#include <sys/stat.h>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

constexpr int64_t kSampled = int64_t{64} << 10;

int64_t changed_ns_of(const struct stat& status) {
  return status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

struct stat status_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) throw io::storage_error(errno, "cannot look at", path);
  return status;
}

}  // namespace

FileMark::FileMark(const std::string& path) : path_(path), changed_ns_(changed_ns_of(status_of(path))) {
  const io::File file = io::File::open(path);
  size_ = file.size();
  ContentHash hash;
  hash.add(std::to_string(size_));
  std::string sample(static_cast<size_t>(std::min(kSampled, size_)), '\0');
  for (const int64_t offset : {int64_t{0}, size_ - std::ssize(sample)}) {
    file.read_at(offset, sample.data(), std::ssize(sample));
    hash.add(sample);
  }
  hash_ = hash.text();
}

void FileMark::check() {
  const struct stat status = status_of(path_);
  if (status.st_size == size_ && changed_ns_of(status) == changed_ns_) return;
  FileMark now(path_);
  if (now.hash_ == hash_) {
    *this = std::move(now);
    return;
  }
  throw Error(ErrorKind::Data, "CHANGED", "the file is another one than when the run began")
      .in(path_)
      .got(std::to_string(now.size_) + " bytes, hash " + now.hash_)
      .need(std::to_string(size_) + " bytes, hash " + hash_)
      .hint("files that are streamed must stay as they are while a run reads them");
}

}  // namespace tessera::data
