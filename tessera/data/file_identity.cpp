#include "tessera/data/file_identity.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <sys/stat.h>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

constexpr int64_t kSettledSeconds = 3;
constexpr int64_t kMaxNoteBytes = 4096;

struct stat status_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) throw io::storage_error(errno, "cannot look at", path);
  return status;
}

std::string text_of(const struct stat& status) {
  std::string text;
  for (const int64_t value :
       {static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino),
        static_cast<int64_t>(status.st_size), static_cast<int64_t>(status.st_mtim.tv_sec),
        static_cast<int64_t>(status.st_mtim.tv_nsec), static_cast<int64_t>(status.st_ctim.tv_sec),
        static_cast<int64_t>(status.st_ctim.tv_nsec)})
    text += std::to_string(value) + ' ';
  return text;
}

uint64_t hash_bytes(const std::string& path) {
  constexpr int64_t kBlock = int64_t{4} << 20;
  ContentHash hash;
  const io::File file = io::File::open(path);
  std::string block;
  for (int64_t offset = 0; offset < file.size(); offset += kBlock) {
    block.resize(static_cast<size_t>(std::min(kBlock, file.size() - offset)));
    file.read_at(offset, block.data(), static_cast<int64_t>(block.size()));
    hash.add(block);
  }
  return hash.value();
}

}  // namespace

std::string file_identity(const std::string& path) { return text_of(status_of(path)); }

uint64_t content_hash(const std::string& path, const std::string& folder) {
  const struct stat status = status_of(path);
  const std::string identity = text_of(status);
  ContentHash name;
  name.add(path);
  const std::string note = io::join_path(folder, name.text() + ".seen");
  const std::string start = identity + '\n';
  try {
    if (io::exists(note)) {
      const std::string text = io::read_file(note, kMaxNoteBytes);
      uint64_t value = 0;
      const char* const end = text.data() + text.size();
      if (text.starts_with(start) && std::from_chars(text.data() + start.size(), end, value).ptr == end)
        return value;
    }
  } catch (const Error&) {
    // A note that cannot be read is no error: the file is read once more.
  }
  const int64_t now = std::time(nullptr);
  const uint64_t value = hash_bytes(path);
  // A change in the same step of the file system's clock would leave the identity as it is, so the hash of a
  // file that has just changed is not kept.
  const bool is_settled =
      std::max<int64_t>(status.st_mtim.tv_sec, status.st_ctim.tv_sec) + kSettledSeconds < now;
  if (is_settled && file_identity(path) == identity) {
    try {
      io::make_directories(folder);
      io::write_file_atomic(note, start + std::to_string(value));
    } catch (const Error&) {
      // A note that cannot be written is no error: the file is read again the next time.
    }
  }
  return value;
}

}  // namespace tessera::data
