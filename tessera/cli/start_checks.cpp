#include "tessera/cli/start_checks.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fcntl.h>
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"

namespace tessera::cli {
namespace {

// Returns the variable that a message names: "OMP_DYNAMIC" in "libgomp: Invalid value for environment
// variable OMP_DYNAMIC".
std::string variable_in(const std::string& line) {
  for (const char* prefix : {"GOMP_", "OMP_"}) {
    const size_t begin = line.find(prefix);
    if (begin == std::string::npos) continue;
    const size_t end = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", begin);
    return line.substr(begin, end == std::string::npos ? end : end - begin);
  }
  // One message does not name its variable.
  return line.find("Stack size") != std::string::npos ? "OMP_STACKSIZE" : "";
}

void tell_words_of_libraries(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const std::string name = variable_in(line);
    const auto value = name.empty() ? std::nullopt : environment::get(name);
    if (!value) {
      log::warn(line);
      continue;
    }
    log::warn("the environment variable " + name + "='" + *value + "' is left out: " + line);
    environment::unset(name);
  }
}

// Limits a team far beyond the number of cores, which would only wait for itself or could not be started.
void limit_team() {
  const int64_t cores = usable_cores(), threads = omp_get_max_threads();
  constexpr int64_t kMostThreads = 256;
  if (threads <= std::max(4 * cores, kMostThreads)) return;
  log::warn("OMP_NUM_THREADS asks for " + std::to_string(threads) + " threads on " + std::to_string(cores) +
            " core(s): left out");
  environment::unset("OMP_NUM_THREADS");
  at::set_num_threads(static_cast<int>(cores));
}

void silence_standard_error() {
  const int nothing = open("/dev/null", O_WRONLY);
  if (nothing >= 0) dup2(nothing, STDERR_FILENO);
}

// Warns if /proc is missing. LibTorch complains about that when it first looks at the processor, so it is
// made to look now, with standard error silenced.
void tell_missing_proc() {
  if (access("/proc/self/stat", R_OK) == 0) return;
  log::warn("/proc is not mounted: memory cannot be measured, and the processor's name is unknown");
  const int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  silence_standard_error();
  at::get_cpu_capability();
  dup2(saved, STDERR_FILENO);
  close(saved);
}

// Returns the number of threads that this process will compute with; the ranks of one machine share its
// cores.
int64_t team_of_this_process() {
  const int64_t threads = at::get_num_threads();
  if (environment::get("OMP_NUM_THREADS")) return threads;
  return std::clamp<int64_t>(usable_cores() / comm::launch_info().local_size, 1, threads);
}

void* wait_for_end(void*) {
  pause();
  return nullptr;
}

}  // namespace

bool can_start_threads(int64_t plain, int64_t team) {
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return false;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // OpenMP's library would say why it cannot start threads, and ends the process.
    silence_standard_error();
    // Threads that would belong to many processes are tried in the address space of one, so their stacks are
    // small. Below this size the thread-local storage of libraries may not fit.
    constexpr size_t kStack = 256 << 10;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStack);
    for (int64_t i = 0; i < plain; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, &attributes, wait_for_end, nullptr) != 0) _exit(1);
    }
    int64_t started = 0;
#pragma omp parallel num_threads(static_cast <int>(team)) reduction(+ : started)
    started += 1;
    _exit(started > 0 ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void check_start(const std::vector<std::string>& library_words) {
  environment::check();
  tell_words_of_libraries(library_words);
  limit_team();
  tell_missing_proc();
  const int64_t team = team_of_this_process();
  if (can_start_threads(1, team)) return;
  Error error(ErrorKind::Config, "THREADS",
              "the system does not allow this process to start " + std::to_string(team) + " threads");
  if (const auto stack = environment::get("OMP_STACKSIZE")) error.got("OMP_STACKSIZE=" + *stack);
  throw error.hint(
      "raise the limits on processes (ulimit -u) and on address space (ulimit -v), or set OMP_NUM_THREADS=1");
}

}  // namespace tessera::cli
