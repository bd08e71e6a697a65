#include "tessera/cli/launch_checks.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <ATen/Parallel.h>
#include <unistd.h>

#include "tessera/cli/start_checks.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Needs of OpenMPI itself and of each rank, measured with OpenMPI 4.1, with room to spare.
constexpr int64_t kFiles = 64, kFilesOfRank = 16;
constexpr int64_t kThreads = 5, kThreadsOfRank = 4;
constexpr int64_t kFileSize = 16 * kMiB;
constexpr int64_t kAddressSpace = 512 * kMiB;
constexpr int64_t kSession = 16 * kMiB, kSessionOfRank = 8 * kMiB;

std::string ranks(int64_t nproc) { return "--nproc " + std::to_string(nproc); }

void check_limit(__rlimit_resource resource, int64_t need, const char* what, const char* hint,
                 int64_t nproc) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(need)) return;
  throw Error(ErrorKind::Config, "LIMIT",
              std::string("the limit on ") + what + " is too low for " + ranks(nproc))
      .got(std::to_string(limit.rlim_cur))
      .need(std::to_string(need))
      .hint(hint);
}

void check_address_space(int64_t nproc) {
  void* const room = mmap(nullptr, static_cast<size_t>(kAddressSpace), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    throw Error(ErrorKind::Memory, "ADDRESS-SPACE",
                "the limit on address space is too low for " + ranks(nproc))
        .need(format_bytes(kAddressSpace) + " more than for one process")
        .hint("ulimit -v unlimited");
  }
  munmap(room, static_cast<size_t>(kAddressSpace));
}

void check_threads(int64_t nproc) {
  const int64_t cores = usable_cores();
  const int64_t team =
      environment::get("OMP_NUM_THREADS") ? at::get_num_threads() : std::max<int64_t>(1, cores / nproc);
  const int64_t need = kThreads + nproc * (kThreadsOfRank + team);
  // No more than this are tried: a system that allows as many has no low limit.
  constexpr int64_t kMostTried = 1024;
  if (can_start_threads(std::min(need, kMostTried), 1)) return;
  throw Error(ErrorKind::Config, "THREADS",
              "the system does not allow this user to start the processes and threads of " + ranks(nproc))
      .need(std::to_string(need) + " more")
      .hint("raise the limits on processes (ulimit -u, or the container's) and on address space (ulimit -v)");
}

// Checks the loopback interface, over which the launcher and its ranks talk.
void check_loopback() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  const bool is_open = listener >= 0 && caller >= 0 && bind(listener, name, sizeof address) == 0 &&
                       listen(listener, 1) == 0 && getsockname(listener, name, &length) == 0 &&
                       (connect(caller, name, sizeof address) == 0 || errno == EINPROGRESS);
  const int error_number = errno;
  if (listener >= 0) close(listener);
  if (caller >= 0) close(caller);
  if (is_open) return;
  throw Error(
      ErrorKind::Config, "LOOPBACK",
      std::string(
          "the ranks of --nproc communicate over the loopback network interface, which does not work: ") +
          std::strerror(error_number))
      .hint("ip link set lo up");
}

}  // namespace

void check_launch(int64_t nproc) {
  check_limit(RLIMIT_NOFILE, kFiles + kFilesOfRank * nproc, "open files", "ulimit -n 4096", nproc);
  check_limit(RLIMIT_FSIZE, kFileSize, "the size of files", "ulimit -f unlimited", nproc);
  check_address_space(nproc);
  check_loopback();
  check_threads(nproc);
}

int64_t session_bytes(int64_t nproc) { return kSession + kSessionOfRank * nproc; }

}  // namespace tessera::cli
