// Imitates a disk that fails while it is read, for a program that this library is loaded into (LD_PRELOAD).
// The environment says when:
//
// READ_FAULT_FOLDER: only reads of files below this folder count.
// READ_FAULT_NAME: only reads of files whose path ends like this count; empty: of all.
// READ_FAULT_RANK: the rank that has the fault, or "none" for a process without a launcher.
// READ_FAULT_NUMBER: the number of the read that fails, from 1.
// READ_FAULT: how it fails: "EIO", "end" (nothing is read, as at the end of the file) or "short" (half of the
//   bytes are read); or "count", for no fault.
// READ_FAULT_COUNT: with "count", the file that the number of reads is written into.
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/syscall.h>

#include <unistd.h>

namespace {

const char* setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_rank() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return std::strcmp(rank == nullptr ? "none" : rank, setting("READ_FAULT_RANK")) == 0;
}

bool is_counted(int file) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path);
  const char* const folder = setting("READ_FAULT_FOLDER");
  const auto size = static_cast<ssize_t>(std::strlen(folder));
  if (size == 0 || length <= size || std::memcmp(path, folder, static_cast<size_t>(size)) != 0) return false;
  const char* const name = setting("READ_FAULT_NAME");
  const auto end = static_cast<ssize_t>(std::strlen(name));
  return end <= length && std::memcmp(path + length - end, name, static_cast<size_t>(end)) == 0;
}

std::atomic<long> num_reads{0};

// Returns how many bytes the next read gets: `size` or less, or -1 for an error.
ssize_t fate(int file, size_t size) {
  const auto whole = static_cast<ssize_t>(size);
  if (size == 0 || !is_rank() || !is_counted(file)) return whole;
  if (++num_reads != std::atol(setting("READ_FAULT_NUMBER"))) return whole;
  const char* const fault = setting("READ_FAULT");
  if (std::strcmp(fault, "end") == 0) return 0;
  if (std::strcmp(fault, "short") == 0) return size > 1 ? whole / 2 : whole;
  errno = EIO;
  return -1;
}

// The process that this library was loaded into, as opposed to those that it forks.
const pid_t process = getpid();

void tell_count() {
  if (getpid() != process || !is_rank() || std::strcmp(setting("READ_FAULT"), "count") != 0) return;
  std::FILE* const file = std::fopen(setting("READ_FAULT_COUNT"), "w");
  if (file == nullptr) return;
  std::fprintf(file, "%ld", num_reads.load());
  std::fclose(file);
}

}  // namespace

extern "C" {

ssize_t pread(int file, void* data, size_t size, off_t offset) {
  const ssize_t read = fate(file, size);
  return read <= 0 ? read : syscall(SYS_pread64, file, data, read, offset);
}

ssize_t pread64(int file, void* data, size_t size, off64_t offset) { return pread(file, data, size, offset); }

ssize_t read(int file, void* data, size_t size) {
  const ssize_t read = fate(file, size);
  return read <= 0 ? read : syscall(SYS_read, file, data, read);
}

// The program ends so (cli/program.h).
[[noreturn]] void _exit(int code) {
  tell_count();
  for (;;) syscall(SYS_exit_group, code);
}
}
