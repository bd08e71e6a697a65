#include "tessera/io/byte_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(File file) : file_(std::move(file)) {}

  int64_t read(char* to, int64_t room) override {
    const int64_t size = std::min(room, file_.size() - offset_);
    if (size > 0) file_.read_at(offset_, to, size);
    offset_ += size;
    return size;
  }
  void skip(int64_t bytes) override { offset_ += std::min(bytes, file_.size() - offset_); }

 private:
  File file_;
  int64_t offset_ = 0;
};

// The part that both compressed formats share: it reads the blocks of the file that are decompressed, and
// makes the errors with their places.
class CompressedStream : public ByteStream {
 public:
  explicit CompressedStream(File file)
      : file_(std::move(file)), block_(static_cast<size_t>(std::min(kBlockBytes, file_.size()))) {}

  int64_t read(char* to, int64_t room) override {
    const int64_t size = decompress(to, room);
    line_ += std::count(to, to + size, '\n');
    return size;
  }

 protected:
  virtual int64_t decompress(char* to, int64_t room) = 0;

  // Returns the next block of the file, or an empty one at its end. The view is valid until the next call.
  std::string_view next_block() {
    const int64_t size = std::min(kBlockBytes, file_.size() - offset_);
    if (size > 0) file_.read_at(offset_, block_.data(), size);
    offset_ += size;
    return {block_.data(), static_cast<size_t>(size)};
  }

  // Makes the error for damaged data. `unread` is the number of bytes of the last block that have not been
  // decompressed.
  Error damaged(const std::string& what, size_t unread) const {
    return Error(ErrorKind::Data, "COMPRESSED",
                 what + " at byte offset " + std::to_string(offset_ - static_cast<int64_t>(unread)) +
                     " of the compressed file")
        .at(file_.path(), line_)
        .hint("the file was not copied completely, or is damaged: download it again");
  }

 private:
  File file_;
  std::vector<char> block_;
  int64_t offset_ = 0;  // in the file, behind the last block read
  int64_t line_ = 1;    // line of the decompressed text, behind all that was read
};

class GzipStream : public CompressedStream {
 public:
  explicit GzipStream(File file) : CompressedStream(std::move(file)) {
    constexpr int kGzipFormat = 16;
    TESSERA_ASSERT(inflateInit2(&state_, kGzipFormat + MAX_WBITS) == Z_OK, "zlib cannot be set up");
  }
  ~GzipStream() override { inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

 protected:
  int64_t decompress(char* to, int64_t room) override {
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(std::min<int64_t>(room, kBlockBytes));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (state_.avail_in == 0) {
        const std::string_view block = next_block();
        if (block.empty()) {
          if (is_between_members_) return 0;
          throw damaged("the gzip data end early,", 0);
        }
        state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));
        state_.avail_in = static_cast<uInt>(block.size());
      }
      // Zero bytes behind a member are padding, such as a tape has, and are skipped.
      if (is_between_members_ && has_read_member_ && *state_.next_in == 0) {
        ++state_.next_in;
        --state_.avail_in;
        continue;
      }
      is_between_members_ = false;
      const int result = inflate(&state_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        is_between_members_ = has_read_member_ = true;
        inflateReset(&state_);
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        throw damaged(std::string("gzip: ") + (state_.msg != nullptr ? state_.msg : "damaged data"),
                      state_.avail_in);
      }
    }
    return wanted - state_.avail_out;
  }

 private:
  z_stream state_ = {};
  bool is_between_members_ = true, has_read_member_ = false;
};

class ZstdStream : public CompressedStream {
 public:
  explicit ZstdStream(File file) : CompressedStream(std::move(file)), state_(ZSTD_createDStream()) {
    TESSERA_ASSERT(state_ != nullptr, "zstd cannot be set up");
  }
  ~ZstdStream() override { ZSTD_freeDStream(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

 protected:
  int64_t decompress(char* to, int64_t room) override {
    ZSTD_outBuffer out = {to, static_cast<size_t>(room), 0};
    while (out.pos == 0) {
      // The decoder may still hold text of a frame when it has taken all of the frame's bytes: it stops where
      // `out` is full. No new block is needed then.
      if (in_.pos == in_.size && !may_hold_more_) {
        const std::string_view block = next_block();
        if (block.empty()) {
          if (is_between_frames_) return 0;
          throw damaged("the Zstandard data end early,", 0);
        }
        in_ = {block.data(), block.size(), 0};
      }
      const size_t result = ZSTD_decompressStream(state_, &out, &in_);
      if (ZSTD_isError(result) != 0)
        throw damaged(std::string("Zstandard: ") + ZSTD_getErrorName(result), in_.size - in_.pos);
      is_between_frames_ = result == 0;
      may_hold_more_ = out.pos == out.size && result != 0;
    }
    return static_cast<int64_t>(out.pos);
  }

 private:
  ZSTD_DStream* state_;
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  bool is_between_frames_ = true, may_hold_more_ = false;
};

}  // namespace

void ByteStream::skip(int64_t bytes) {
  std::vector<char> block(static_cast<size_t>(std::min(bytes, kBlockBytes)));
  while (bytes > 0) {
    const int64_t size = read(block.data(), std::min(bytes, kBlockBytes));
    if (size == 0) return;
    bytes -= size;
  }
}

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
  File file = File::open(path);
  char magic[4] = {};
  file.read_at(0, magic, std::min<int64_t>(sizeof magic, file.size()));
  const std::string_view head(magic, sizeof magic);
  if (head.starts_with("\x1F\x8B")) return std::make_unique<GzipStream>(std::move(file));
  if (head == "\x28\xB5\x2F\xFD") return std::make_unique<ZstdStream>(std::move(file));
  return std::make_unique<PlainStream>(std::move(file));
}

}  // namespace tessera::io
