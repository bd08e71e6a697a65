#include "tessera/cli/before_main.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/core/environment.h"

namespace tessera::cli {
namespace {

// A spin of a quarter of a millisecond on an Intel processor, of a tenth on an AMD one: longer than most
// pauses between two operations of a step, shorter than a time slice of the scheduler. Waking a thread of a
// virtual machine takes long. Measured on one (Intel, 2 cores), against a fifth of the spin: LoRA 1.10 times
// as fast, generation 1.13 times, and two runs at once on the same cores 0.85 times.
constexpr char kShortSpin[] = "GOMP_SPINCOUNT=5000";

int saved_stderr = -1, library_words = -1;

// The functions from here to before_libraries() run before the initialisers of all libraries, so they use
// system calls and plain memory only.

constexpr rlim_t kMiB = 1 << 20;
constexpr rlim_t kUsualStack = 8 * kMiB, kLeastStack = kMiB;
constexpr rlim_t kUsualFiles = 4096;
// Address space that LibTorch's initialisers and the smallest model take.
constexpr size_t kLeastAddressSpace = 160 * kMiB;

[[noreturn]] void end_early(const char* text, int exit_code) {
  (void)!write(STDERR_FILENO, text, std::strlen(text));
  _exit(exit_code);
}

void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The stream is opened the wrong way round, so that using it fails, as it would have with a closed one.
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

// Raises the soft limit to `wanted` as far as the hard one allows; returns whether it changed.
bool raise_limit(__rlimit_resource resource, rlim_t wanted) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur >= wanted) return false;
  const rlim_t most = std::min(wanted, limit.rlim_max);
  if (most <= limit.rlim_cur) return false;
  limit.rlim_cur = most;
  // The limit is read back: on a system that reports success and changes nothing, the program would restart
  // itself for ever.
  return setrlimit(resource, &limit) == 0 && getrlimit(resource, &limit) == 0 && limit.rlim_cur >= most;
}

void check_working_folder() {
  char folder[PATH_MAX];
  if (getcwd(folder, sizeof folder) != nullptr || errno != ENOENT) return;
  end_early(
      "tessera: error[E-CONFIG-FOLDER]: the current folder no longer exists. hint: cd into a folder that "
      "exists\n",
      2);
}

void check_limits() {
  rlimit stack = {};
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kLeastStack) {
    end_early(
        "tessera: error[E-CONFIG-LIMIT]: the limit on the stack size is too low; need 1 MiB. hint: ulimit -s "
        "8192\n",
        2);
  }
  void* const room =
      mmap(nullptr, kLeastAddressSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    end_early(
        "tessera: error[E-MEMORY-ADDRESS-SPACE]: the limit on the address space is too low to start; need 1 "
        "GiB. hint: ulimit -v unlimited\n",
        10);
  }
  munmap(room, kLeastAddressSpace);
}

bool is_variable(const char* entry, const char* name) {
  const size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// Replaces this process by a new start of the program. If that fails, the program goes on as it is.
void run_again(char** arguments, char** environment) {
  static char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  const char* path = length > 0 ? self : reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (path == nullptr) return;
  // A program that was started through the dynamic loader would need other arguments.
  const char* name = std::strrchr(path, '/');
  if (name != nullptr && std::strncmp(name, "/ld-", 4) == 0) return;
  execve(path, arguments, environment);
}

// Writes at the exit of the process the lines that are still kept back: an initialiser has ended it, and they
// say why.
void give_words_back() {
  for (const std::string& line : words_of_libraries()) {
    (void)!write(STDERR_FILENO, line.data(), line.size());
    (void)!write(STDERR_FILENO, "\n", 1);
  }
}

// Redirects standard error into a memory file if OpenMP variables are set, since OpenMP's library tells in
// its initialiser which of their values it does not understand. check_start() tells these lines in the
// program's own words.
void keep_words_of_libraries(char** environment) {
  const bool has_openmp = [&] {
    for (; *environment != nullptr; ++environment) {
      const bool is_openmp =
          std::strncmp(*environment, "OMP_", 4) == 0 || std::strncmp(*environment, "GOMP_", 5) == 0;
      if (is_openmp && std::strcmp(*environment, kShortSpin) != 0) return true;
    }
    return false;
  }();
  if (!has_openmp) return;
  constexpr int kBeyondStandard = 10;
  library_words = memfd_create("tessera", MFD_CLOEXEC);
  if (library_words < 0) return;
  saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kBeyondStandard);
  if (saved_stderr < 0 || dup2(library_words, STDERR_FILENO) < 0) return;
  std::atexit(give_words_back);
}

}  // namespace

void before_libraries(int, char** arguments, char** environment) {
  open_standard_streams();
  bool is_changed = raise_limit(RLIMIT_STACK, kUsualStack);
  raise_limit(RLIMIT_NOFILE, kUsualFiles);
  check_working_folder();
  check_limits();

  constexpr size_t kMostVariables = 4096;
  static char* variables[kMostVariables + 2];
  static char spin[sizeof kShortSpin];
  size_t count = 0;
  bool has_policy = false;
  for (; environment[count] != nullptr && count < kMostVariables; ++count) {
    has_policy = has_policy || is_variable(environment[count], "OMP_WAIT_POLICY") ||
                 is_variable(environment[count], "GOMP_SPINCOUNT");
    variables[count] = environment[count];
  }
  if (count < kMostVariables && !has_policy) {
    std::memcpy(spin, kShortSpin, sizeof kShortSpin);
    variables[count] = spin;
    is_changed = true;
  }
  // The stack of a process is laid out, and OpenMP's variables are read, when a program starts: changes take
  // effect in a new start. The new program finds nothing to change, so it does not start itself once more.
  if (is_changed && count < kMostVariables) run_again(arguments, variables);
  keep_words_of_libraries(environment);
}

std::vector<std::string> words_of_libraries() {
  if (saved_stderr < 0) return {};
  dup2(saved_stderr, STDERR_FILENO);
  close(saved_stderr);
  saved_stderr = -1;
  std::vector<std::string> lines(1);
  char text[16384];
  const ssize_t length = pread(library_words, text, sizeof text, 0);
  close(library_words);
  for (ssize_t i = 0; i < length; ++i) {
    if (text[i] != '\n') {
      lines.back() += text[i];
    } else if (!lines.back().empty()) {
      lines.emplace_back();
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

std::string describe_wait_policy() {
  const auto policy = environment::get("OMP_WAIT_POLICY"), spin = environment::get("GOMP_SPINCOUNT");
  if (spin) {
    const bool is_default = *spin == std::strchr(kShortSpin, '=') + 1 && !policy;
    return "sleep after a spin of " + *spin + " (GOMP_SPINCOUNT" +
           (is_default ? ", tessera's default)" : ")");
  }
  if (policy) return *policy + " (OMP_WAIT_POLICY)";
  return "spin for milliseconds: set OMP_WAIT_POLICY=passive where others use the machine";
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) return {path, static_cast<size_t>(length)};
  const char* const started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return started != nullptr && realpath(started, path) != nullptr ? path : "";
}

}  // namespace tessera::cli
