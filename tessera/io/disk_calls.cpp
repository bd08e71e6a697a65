#include "tessera/io/disk_calls.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <utility>

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <unistd.h>

namespace tessera::io::disk {
namespace {

Hook& hook() {
  static Hook installed;
  return installed;
}

ReadHook& read_hook() {
  static ReadHook installed;
  return installed;
}

TransferHook& transfer_hook() {
  static TransferHook installed;
  return installed;
}

template <typename Call>
auto run(std::string_view name, const std::string& path, Call call) {
  decltype(call()) result = -1;
  if (hook()) {
    if (const int cause = hook()(name, path); cause != 0) {
      errno = cause;
      return result;
    }
  }
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

void set_hook(Hook installed) { hook() = std::move(installed); }
void set_read_hook(ReadHook installed) { read_hook() = std::move(installed); }
void set_transfer_hook(TransferHook installed) { transfer_hook() = std::move(installed); }

int64_t bytes_to_move(std::string_view call, const std::string& path, int64_t num_bytes) {
  return transfer_hook() ? transfer_hook()(call, path, num_bytes) : num_bytes;
}

int open_new(const std::string& path, int more_flags) {
  return run("open", path,
             [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | more_flags, 0666); });
}

int open_nameless(const std::string& folder, int more_flags) {
  const int flags = O_RDWR | O_CLOEXEC | O_EXCL | more_flags;
  const int nameless = run((more_flags & O_DIRECT) != 0 ? "open_direct" : "open_nameless", folder,
                           [&] { return ::open(folder.c_str(), O_TMPFILE | flags, 0600); });
  // EISDIR: a kernel or a file system that takes this for an attempt to write into the folder itself.
  if (nameless >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return nameless;
  static std::atomic<uint64_t> counter{0};
  const std::string path =
      folder + "/tessera-spill." + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  const int named = run("open", path, [&] { return ::open(path.c_str(), O_CREAT | flags, 0600); });
  const int cause = errno;
  if (named >= 0) (void)remove_file(path);
  errno = cause;
  return named;
}

int64_t write(int descriptor, const std::string& path, const void* data, int64_t num_bytes, int64_t offset) {
  return run("write", path, [&] {
    return static_cast<int64_t>(::pwrite(descriptor, data, static_cast<size_t>(num_bytes), offset));
  });
}

int64_t read(int descriptor, const std::string& path, void* data, int64_t num_bytes, int64_t offset) {
  if (read_hook()) num_bytes = read_hook()(path, num_bytes);
  if (num_bytes < 0) {
    errno = static_cast<int>(-num_bytes);
    return -1;
  }
  int64_t result = 0;
  do {
    result = ::pread(descriptor, data, static_cast<size_t>(num_bytes), offset);
  } while (result < 0 && errno == EINTR);
  return result;
}

int allocate(int descriptor, const std::string& path, int64_t num_bytes) {
  return run("allocate", path, [&] { return ::fallocate(descriptor, 0, 0, num_bytes); });
}

int make_ring(const std::string& path, uint32_t entries, io_uring_params* parameters) {
  return run("make_ring", path,
             [&] { return static_cast<int>(::syscall(SYS_io_uring_setup, entries, parameters)); });
}

int truncate(int descriptor, const std::string& path, int64_t num_bytes) {
  return run("truncate", path, [&] { return ::ftruncate(descriptor, num_bytes); });
}

int flush(int descriptor, const std::string& path) {
  return run("flush", path, [&] { return ::fsync(descriptor); });
}

int change_mode(int descriptor, const std::string& path, uint32_t mode) {
  return run("change_mode", path, [&] { return ::fchmod(descriptor, mode); });
}

int make_folder(const std::string& path) {
  return run("make_folder", path, [&] { return ::mkdir(path.c_str(), 0777); });
}

int remove_file(const std::string& path) {
  return run("remove_file", path, [&] { return ::unlink(path.c_str()); });
}

int remove_folder(const std::string& path) {
  return run("remove_folder", path, [&] { return ::rmdir(path.c_str()); });
}

int rename(const std::string& from, const std::string& to) {
  return run("rename", to, [&] { return ::rename(from.c_str(), to.c_str()); });
}

int exchange(const std::string& one, const std::string& other) {
  return run("exchange", other, [&] {
    return static_cast<int>(
        ::syscall(SYS_renameat2, AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE));
  });
}

}  // namespace tessera::io::disk
