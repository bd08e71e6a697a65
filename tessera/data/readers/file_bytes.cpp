#include "tessera/data/readers/file_bytes.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>

#include "tessera/core/error.h"

namespace tessera::data {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

}  // namespace

FileBytes::FileBytes(const std::string& path) : path_(path), buffer_(kBlockBytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 && errno == ENOENT) {
    throw Error(ErrorKind::Config, "NO-FILE", "there is no such file").in(path);
  }
  if (S_ISDIR(status.st_mode))
    throw Error(ErrorKind::Config, "NOT-A-FILE", "is a folder").in(path).need("a file");
  file_.reset(std::fopen(path.c_str(), "rb"));
  if (!file_)
    throw Error(ErrorKind::Storage, "OPEN", std::string("cannot open: ") + std::strerror(errno)).in(path);
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);

  const std::string_view head = peek();
  if (head.substr(0, 3) == "\xEF\xBB\xBF") {
    consume(3);
    had_byte_order_mark_ = true;
  } else if (head.substr(0, 2) == "\xFF\xFE" || head.substr(0, 2) == "\xFE\xFF") {
    throw Error(ErrorKind::Data, "ENCODING", "the file is UTF-16 or UTF-32").at(path, 1, 1).need("UTF-8");
  }
}

std::string_view FileBytes::peek() {
  if (begin_ == end_) {
    begin_ = 0;
    end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
    if (end_ == 0 && std::ferror(file_.get()) != 0) {
      throw Error(ErrorKind::Storage, "READ", std::string("cannot read: ") + std::strerror(errno))
          .in(path_ + ": byte " + std::to_string(offset_));
    }
  }
  return {buffer_.data() + begin_, end_ - begin_};
}

void FileBytes::consume(size_t bytes) {
  begin_ += bytes;
  offset_ += static_cast<int64_t>(bytes);
}

int FileBytes::get() {
  if (begin_ == end_ && peek().empty()) return -1;
  ++offset_;
  return static_cast<unsigned char>(buffer_[begin_++]);
}

}  // namespace tessera::data
