#include "tessera/comm/mpi/launcher_release.h"

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <ctime>
#include <fstream>
#include <iterator>
#include <netinet/in.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <poll.h>
#include <unistd.h>

#include "tessera/core/process_stats.h"

namespace tessera::comm::detail {
namespace {

// Gives the nearest ancestor of this process that is a launcher of OpenMPI; 0 for none.
pid_t find_launcher() {
  constexpr const char* kNames[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prte", "prted"};
  constexpr int kMostSteps = 8;  // there may be scripts between it and the ranks
  pid_t id = getppid();
  for (int step = 0; step < kMostSteps && id > 1; ++step, id = process_status(id).parent) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(id) + "/comm"), name);
    if (std::ranges::find(kNames, name) != std::end(kNames)) return id;
  }
  return 0;
}

bool is_on_this_machine(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer);
    return (ntohl(address.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  if (peer.ss_family != AF_INET6) return true;
  const auto& address = reinterpret_cast<const sockaddr_in6&>(peer);
  return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) != 0;
}

// The following functions run in a process that was forked from one with threads, so they make system calls
// only.

bool ends_within(int process, int seconds) {
  pollfd wait = {process, POLLIN, 0};
  return poll(&wait, 1, seconds * 1000) > 0;
}

// Shuts down the connections of `process` (a pidfd) to other machines, through copies of its descriptors.
void close_connections(int process, int num_files) {
  for (int number = STDERR_FILENO + 1; number < num_files; ++number) {
    const auto file = static_cast<int>(syscall(SYS_pidfd_getfd, process, number, 0));
    if (file < 0) continue;
    sockaddr_storage peer = {};
    socklen_t length = sizeof peer;
    if (getpeername(file, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && !is_on_this_machine(peer))
      shutdown(file, SHUT_RDWR);
    close(file);
  }
}

[[noreturn]] void see_to_end_of(int process, int num_files) {
  constexpr int kBeforeClosing_s = 6, kBeforeKilling_s = 30;
  setsid();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) std::signal(signal, SIG_IGN);
  // Whoever waits for the end of the ranks' output must not wait for this process, which has inherited it.
  for (int file = 0; file < num_files; ++file) {
    if (file != process) close(file);
  }
  if (ends_within(process, kBeforeClosing_s)) _exit(0);
  close_connections(process, num_files);
  if (!ends_within(process, kBeforeKilling_s)) syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0);
  _exit(0);
}

}  // namespace

void release_launcher() {
  const pid_t launcher = find_launcher();
  if (launcher == 0) return;
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, launcher, 0));
  if (process < 0) return;
  constexpr rlim_t kMostFiles = 65536;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto num_files = static_cast<int>(std::min(limit.rlim_cur, kMostFiles));
  const pid_t child = fork();
  if (child == 0) {
    // The second fork makes the process nobody's child: the launcher ends the children of its ranks.
    if (fork() == 0) see_to_end_of(process, num_files);
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
  close(process);
}

}  // namespace tessera::comm::detail
