#include "tessera/cli/launch.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"

namespace tessera::cli {
namespace {

volatile std::sig_atomic_t launcher_id = 0;

// A key pressed on the terminal reaches the launcher by itself.
void pass_on(int signal, siginfo_t* info, void*) {
  if (info->si_code <= 0 && launcher_id > 0) kill(launcher_id, signal);
}

void pass_signals_to_launcher() {
  struct sigaction action = {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction inherited = {};
    // What is ignored stays so (nohup).
    if (sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

// Starts mpirun; it ends when this process does. Its wait status.
int run_launcher(std::vector<char*>& command, int64_t nproc) {
  // Tells whether exec failed: closed by a successful one.
  int failure[2];
  TESSERA_ASSERT(pipe2(failure, O_CLOEXEC) == 0, "cannot make a pipe");
  pass_signals_to_launcher();
  const pid_t parent = getpid();
  const pid_t child = fork();
  TESSERA_ASSERT(child >= 0, std::string("cannot fork: ") + std::strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    execvp(command[0], command.data());
    const int error_number = errno;
    (void)!write(failure[1], &error_number, sizeof error_number);
    _exit(127);
  }
  launcher_id = child;
  close(failure[1]);
  int error_number = 0, status = 0;
  const bool has_failed = read(failure[0], &error_number, sizeof error_number) == sizeof error_number;
  close(failure[0]);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (has_failed) {
    throw Error(ErrorKind::Config, "LAUNCHER",
                std::string("cannot start mpirun: ") + std::strerror(error_number))
        .need("OpenMPI for --nproc " + std::to_string(nproc))
        .hint("install openmpi-bin, or start the ranks by your cluster's own launcher");
  }
  return status;
}

// The launcher is quiet, so what no rank could say is said here.
int job_exit_code(int status) {
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  const int code = WEXITSTATUS(status);
  const int signal = code - 128;
  if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return code;
  if (signal > 0 && signal < 65) {
    throw Error(
        ErrorKind::Peer, "LOST",
        std::string("a rank was ended by signal ") + std::to_string(signal) + " (" + strsignal(signal) + ")")
        .hint(signal == SIGKILL ? "the system kills the largest process when memory runs out" : "");
  }
  if (code == 1) log::info("the ranks ended with exit code 1");
  return code;
}

}  // namespace

std::vector<std::string> without_nproc(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--nproc") {
      ++i;
    } else if (arguments[i].rfind("--nproc=", 0) != 0) {
      kept.push_back(arguments[i]);
    }
  }
  return kept;
}

std::optional<int> relaunch(int64_t nproc, const std::vector<std::string>& arguments) {
  if (nproc <= 1) return std::nullopt;
  const comm::LaunchInfo info = comm::launch_info();
  if (info.has_launcher && info.size != nproc) {
    throw Error(ErrorKind::Config, "NPROC", "--nproc does not fit the launcher that started this process")
        .got("--nproc " + std::to_string(nproc) + " and " + std::to_string(info.size) + " rank(s)")
        .need("one of the two")
        .hint("under mpirun or srun leave out --nproc; in a Slurm batch script start the ranks with srun");
  }
  if (info.has_launcher) return std::nullopt;
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  TESSERA_ASSERT(length > 0, "cannot find this program's own file");
  self[length] = '\0';

  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  // A waiting rank lets another one run on its core.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Copies between processes may be forbidden (containers); shared memory always works.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);

  // The ranks' standard error reaches the terminal through the launcher's pipe.
  if (isatty(STDERR_FILENO) != 0) setenv("TESSERA_STDERR_IS_TERMINAL", "1", 1);

  std::vector<std::string> command = {"mpirun", "--quiet", "--oversubscribe",     "--bind-to",
                                      "none",   "-n",      std::to_string(nproc), self};
  for (const std::string& argument : without_nproc(arguments)) command.push_back(argument);
  std::vector<char*> pointers;
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return job_exit_code(run_launcher(pointers, nproc));
}

}  // namespace tessera::cli
