#include "tessera/io/mapped_file.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

// All mappings by the address of their first byte, with size and path. The signal handler may lock the mutex:
// the thread that it interrupts was reading mapped bytes, which the code of this file never does while it
// holds the mutex.
struct Mappings {
  std::mutex mutex;
  std::map<const char*, std::pair<size_t, std::string>> by_address;
};
Mappings& mappings() {
  static Mappings all;
  return all;
}

void say_and_end(const char* line, int exit_code) {
  (void)!::write(fileno(log::stream()), line, std::strlen(line));
  ::_exit(exit_code);
}
FaultEnd fault_end = say_and_end;

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto* const address = static_cast<const char*>(info->si_addr);
  Mappings& all = mappings();
  const std::scoped_lock lock(all.mutex);
  auto found = all.by_address.upper_bound(address);
  if (found != all.by_address.begin() && address < (--found)->first + found->second.first) {
    char text[4500];
    std::snprintf(
        text, sizeof text,
        "tessera: error[E-STORAGE-MAPPED]: %.4000s: byte %lld cannot be read: the file shrank, or its disk "
        "failed\n",
        found->second.second.c_str(), static_cast<long long>(address - found->first));
    fault_end(text, exit_code(ErrorKind::Storage));
  }
  // No mapping of ours holds the address, so the signal has its default effect.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void catch_bus_errors() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

void set_fault_end(FaultEnd end) { fault_end = end; }

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const File file = File::open(path);  // refuses all but regular files
  size_ = static_cast<size_t>(file.size());
  if (size_ == 0) return;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw storage_error(errno, "cannot open", path);
  struct stat status = {};
  ::fstat(descriptor, &status);
  size_ = static_cast<size_t>(status.st_size);
  void* const data = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  const int failure = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) throw storage_error(failure, "map", path);
  data_ = static_cast<const char*>(data);
  static std::once_flag once;
  std::call_once(once, catch_bus_errors);
  const std::scoped_lock lock(mappings().mutex);
  if (data_ != nullptr) mappings().by_address[data_] = {size_, path_};
}

MappedFile::MappedFile(MappedFile&& other) noexcept { swap(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  swap(other);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  {
    const std::scoped_lock lock(mappings().mutex);
    mappings().by_address.erase(data_);
  }
  ::munmap(const_cast<char*>(data_), size_);
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

}  // namespace tessera::io
