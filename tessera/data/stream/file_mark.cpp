#include "tessera/data/stream/file_mark.h"

#include <algorithm>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/data/file_identity.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

constexpr int64_t kSampled = int64_t{64} << 10;

}  // namespace

FileMark::FileMark(const std::string& path) : path_(path), identity_(file_identity(path)) {
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
  if (file_identity(path_) == identity_) return;
  // The times may have changed alone, or the file is a copy: its samples decide.
  FileMark now(path_);
  if (now.hash_ == hash_) {
    *this = std::move(now);
    return;
  }
  throw Error(ErrorKind::Data, "CHANGED", "the file is not the one that the run began with")
      .in(path_)
      .got(std::to_string(now.size_) + " bytes, hash " + now.hash_)
      .need(std::to_string(size_) + " bytes, hash " + hash_)
      .hint("streamed files must not change while a run reads them");
}

}  // namespace tessera::data
