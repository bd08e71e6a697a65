#include "tessera/hub/blob.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/sha256.h"
#include "tessera/hub/file_lock.h"
#include "tessera/hub/retries.h"
#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

namespace tessera::hub {
namespace {

constexpr int kWholeAttempts = 2;  // downloads from the first byte on, of contents that turn out wrong
// So many new bytes make an attempt a success: the failures before it count no more.
constexpr int64_t kProgress = int64_t{1} << 20;

std::string partial_path(const Repository& repository, const RemoteFile& file) {
  return repository.blob(file.etag) + ".incomplete";
}

std::optional<int64_t> size_of(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? std::nullopt : std::optional(static_cast<int64_t>(size));
}

// The part of a file that has arrived, on disk, with its checksum.
class Partial {
 public:
  Partial(std::string path, const RemoteFile& file, Progress* progress)
      : path_(std::move(path)), file_(file), progress_(progress) {
    descriptor_ = io::disk::open_new(path_, 0);
    if (descriptor_ < 0) throw io::storage_error(errno, "cannot write", path_);
    try {
      take_up();
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  ~Partial() { ::close(descriptor_); }

  int64_t size() const { return size_; }
  bool is_whole() const { return size_ == file_.size; }

  void append(std::string_view bytes) {
    const auto count = static_cast<int64_t>(bytes.size());
    for (int64_t done = 0; done < count;) {
      const int64_t written =
          io::disk::write(descriptor_, path_, bytes.data() + done, count - done, size_ + done);
      if (written < 0) throw io::storage_error(errno, "cannot write", path_);
      done += written;
    }
    size_ += count;
    if (file_.has_sha256) sha256_.add(bytes);
    if (progress_ != nullptr) progress_->add(count);
  }

  void restart() {
    if (progress_ != nullptr) progress_->add(-size_);
    cut(0);
  }

  // Returns what is wrong with the whole file, or "".
  std::string fault() {
    if (!file_.has_sha256) return "";
    const std::string found = sha256_.hex();
    return found == file_.etag ? "" : "SHA-256 " + found;
  }

  void flush() const {
    if (io::disk::flush(descriptor_, path_) != 0) throw io::storage_error(errno, "cannot write", path_);
  }

 private:
  void cut(int64_t size) {
    if (io::disk::truncate(descriptor_, path_, size) != 0)
      throw io::storage_error(errno, "cannot write", path_);
    size_ = 0;
    sha256_ = {};
  }

  // Goes on behind what the file holds. More than the whole file cannot be of it.
  void take_up() {
    const int64_t found = size_of(path_).value_or(0);
    if (found > file_.size) return cut(0);
    size_ = found;
    if (!file_.has_sha256 || found == 0) return;
    const io::File before = io::File::open(path_);
    std::vector<char> block(size_t{1} << 20);
    for (int64_t done = 0; done < found;) {
      const int64_t count = std::min<int64_t>(std::ssize(block), found - done);
      before.read_at(done, block.data(), count);
      sha256_.add({block.data(), static_cast<size_t>(count)});
      done += count;
    }
  }

  const std::string path_;
  const RemoteFile& file_;
  Progress* const progress_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  Sha256 sha256_;
};

Error wrong_contents(const Repository& repository, const RemoteFile& file, const std::string& found) {
  return Error(ErrorKind::Storage, "HUB-CHECK",
               "the received data are not " + file.name + " of " + repository.shown())
      .got(found)
      .need(std::to_string(file.size) + " bytes" + (file.has_sha256 ? " with SHA-256 " + file.etag : ""))
      .hint("a proxy or mirror may have changed them; HF_ENDPOINT sets another mirror");
}

// Returns whether the answer's bytes begin at `offset` of the file.
bool begins_at(const io::HttpAnswer& answer, int64_t offset) {
  if (answer.status != 206) return offset == 0;
  return answer.header("content-range").starts_with("bytes " + std::to_string(offset) + '-');
}

// Thrown out of a transfer whose bytes cannot be of the file.
struct WrongBytes {
  const char* what;
};

// Fetches what the partial file lacks.
void fill(io::HttpClient& client, const Repository& repository, const std::string& url,
          const RemoteFile& file, Partial& partial, Retries& retries) {
  int64_t farthest = partial.size();
  while (!partial.is_whole()) {
    const io::HttpAnswer answer = retries.ask([&] {
      bool is_first = true;
      return client.get(url, partial.size(), [&](const io::HttpAnswer& head, std::string_view bytes) {
        if (is_first && !begins_at(head, partial.size())) partial.restart();
        if (is_first && !begins_at(head, partial.size())) throw WrongBytes{"bytes of another place"};
        is_first = false;
        if (partial.size() + std::ssize(bytes) > file.size) throw WrongBytes{"more bytes"};
        partial.append(bytes);
        if (partial.size() < farthest + kProgress) return;
        farthest = partial.size();
        retries.note_progress();
      });
    });
    if (answer.status == 416) {
      partial.restart();
    } else if (!answer.is_good()) {
      throw refusal(repository, answer);
    }
    if (!partial.is_whole()) {
      retries.wait(file.name + " ends after " + std::to_string(partial.size()) + " of " +
                   std::to_string(file.size) + " bytes");
    }
  }
}

}  // namespace

bool has_blob(const Repository& repository, const RemoteFile& file) {
  return size_of(repository.blob(file.etag)) == file.size;
}

int64_t bytes_left_before(const Repository& repository, const RemoteFile& file) {
  const int64_t size = size_of(partial_path(repository, file)).value_or(0);
  return size > file.size ? 0 : size;
}

void download_blob(io::HttpClient& client, const Repository& repository, const std::string& commit,
                   const RemoteFile& file, const Limits& limits, const std::atomic<bool>& stop,
                   Progress* progress) {
  if (has_blob(repository, file)) return;
  const FileLock lock(repository.lock_folder() + '/' + file.etag + ".lock", "");
  if (has_blob(repository, file)) return;
  const std::string path = partial_path(repository, file), blob = repository.blob(file.etag);
  io::make_directories(io::parent_path(path));
  Retries retries(limits, repository.shown() + ": " + file.name, stop);
  Partial partial(path, file, progress);
  std::string fault;
  for (int attempt = 0; attempt < kWholeAttempts; ++attempt) {
    try {
      fill(client, repository, file_url(repository, commit, file.name), file, partial, retries);
      fault = partial.fault();
    } catch (const WrongBytes& wrong) {
      fault = wrong.what;
    }
    if (fault.empty()) {
      partial.flush();
      if (io::disk::rename(path, blob) != 0) throw io::storage_error(errno, "cannot write", blob);
      return;
    }
    // The next download must not take up what is wrong.
    partial.restart();
  }
  throw wrong_contents(repository, file, fault);
}

}  // namespace tessera::hub
