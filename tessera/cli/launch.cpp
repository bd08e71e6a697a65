#include "tessera/cli/launch.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <sys/wait.h>

#include "tessera/cli/launch_checks.h"
#include "tessera/cli/launcher_process.h"
#include "tessera/cli/program.h"
#include "tessera/cli/rank_link.h"
#include "tessera/cli/session_folder.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/host_name.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/train/run/run_signals.h"

namespace tessera::cli {
namespace {

// Returns the folder of the package that this program runs from, which a file tells that scripts/package.sh
// puts there; "" when the program runs from no package.
std::filesystem::path package() {
  std::error_code ignored;
  const std::filesystem::path root = std::filesystem::path(program_path()).parent_path().parent_path();
  return !root.empty() && std::filesystem::exists(root / "lib/openmpi/tessera-package", ignored) ? root : "";
}

std::string mpirun() {
  const std::filesystem::path root = package();
  return root.empty() ? "mpirun" : (root / "bin/mpirun").string();
}

// Sets the variables that OpenMPI reads. A variable that the user has set stays, except for the two folders.
void configure_mpi(const SessionFolder& session) {
  const std::pair<const char*, const char*> settings[] = {
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
      // A waiting rank lets another one run on its core.
      {"OMPI_MCA_mpi_yield_when_idle", "1"},
      // Copies between processes may be forbidden (in containers), while shared memory always works.
      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
      // All ranks are on this machine: no remote shell, no batch system, no network drivers, no question to
      // displays.
      {"OMPI_MCA_plm", "isolated"},
      {"OMPI_MCA_ras", "^slurm,gridengine,tm,lsf,loadleveler,alps"},
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", "self,vader"},
      // The ranks listen to no network then; mpirun itself tells them of the loopback alone.
      {"OMPI_MCA_oob_tcp_if_include", "lo"},
      {"HWLOC_COMPONENTS", "-gl"},
  };
  for (const auto& [name, value] : settings) environment::set_default(name, value);
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory"}) {
    environment::set(name, session.path());
  }
}

// Returns the first line of the launcher's output that says something, in quotes, for an error's text.
std::string first_words(const std::string& output) {
  size_t begin = 0;
  while (begin < output.size()) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    std::string line = output.substr(begin, end - begin);
    begin = end + 1;
    // mpirun puts "[host:1234] " before some lines.
    if (line.rfind('[', 0) == 0 && line.find("] ") != std::string::npos) line.erase(0, line.find("] ") + 2);
    if (line.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos) continue;
    // These lines of mpirun tell that a job has ended badly, which the error itself tells.
    constexpr const char* kEndings[] = {
        "Primary job",   "a non-zero exit code", "mpirun noticed", "mpirun detected",
        "the job to be", "  Process name:",      "  Exit code:"};
    if (std::any_of(std::begin(kEndings), std::end(kEndings),
                    [&](const char* begins) { return line.starts_with(begins); })) {
      continue;
    }
    constexpr size_t kMostSaid = 200;
    return "'" + line.substr(0, kMostSaid) + "'";
  }
  return "nothing";
}

constexpr char kHint[] = "TESSERA_LAUNCHER_OUTPUT=1 shows the complete output of mpirun";

// Returns "process 77 on n01", or "" for process 0.
std::string place_of(pid_t process) {
  return process == 0 ? "" : "process " + std::to_string(process) + " on " + host_name();
}

// Returns the rank that a signal ended first, as mpirun tells it. mpirun may know better than the links,
// since other ranks end with it and it may not have joined.
std::optional<int64_t> rank_ended_by_signal(const std::string& output) {
  constexpr std::string_view kWords = "noticed that process rank ";
  const size_t found = output.find(kWords);
  if (found == std::string::npos) return std::nullopt;
  return std::atoll(output.c_str() + found + kWords.size());
}

[[noreturn]] void throw_signal(const std::string& who, const std::string& place, int signal) {
  throw Error(ErrorKind::Peer, "LOST",
              who + " was ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")" +
                  (place.empty() ? "" : ": " + place))
      .hint(signal == SIGKILL ? "the system kills the largest process when it runs out of memory" : "");
}

// Returns the job's exit code, or throws an Error for an end that no rank has told and the user has not asked
// for.
int job_exit_code(const LauncherEnd& end, const RankLinks& links, int64_t nproc) {
  const auto& failure = links.first_failure();
  if (failure && failure->exit_code) return *failure->exit_code;
  const int code = WIFEXITED(end.status) ? WEXITSTATUS(end.status) : 128 + WTERMSIG(end.status);
  if (code == 0) {
    // Ranks that could not join, and so could not take over the streams, wrote into the launcher's.
    if (links.num_joined() == 0) std::fwrite(end.output.data(), 1, end.output.size(), stderr);
    return 0;
  }
  if (end.signal_to_us != 0) return 128 + end.signal_to_us;
  if (end.has_not_started) {
    throw Error(ErrorKind::Peer, "LAUNCHER",
                "only " + std::to_string(links.num_started()) + " of " + std::to_string(nproc) +
                    " ranks have started on " + host_name() + "; the start waits for " + end.missing +
                    "; the output of mpirun is " + first_words(end.output))
        .hint(std::string("TESSERA_START_TIMEOUT=SECONDS gives them more time; ") + kHint);
  }
  const std::string rank = failure ? "rank " + std::to_string(failure->rank) : "a rank";
  if (code > 128 && code < 128 + 65) {
    if (WIFSIGNALED(end.status) && nproc > 1) throw_signal("mpirun", "", code - 128);
    if (const auto number = rank_ended_by_signal(end.output)) {
      throw_signal("rank " + std::to_string(*number), place_of(links.process_of(*number)), code - 128);
    }
    // mpirun does not always say which rank it was. The first link that ended is that rank's only if every
    // rank has one.
    if (!failure || links.num_joined() < nproc) throw_signal("a rank", "", code - 128);
    throw_signal(rank, place_of(failure->process), code - 128);
  }
  if (failure) {
    throw Error(ErrorKind::Peer, "LOST",
                rank + " ended with exit code " + std::to_string(code) +
                    " without an error message; its output was " + first_words(end.output))
        .hint(kHint);
  }
  throw Error(ErrorKind::Config, "LAUNCHER",
              "mpirun cannot start the ranks (exit code " + std::to_string(code) + "); its output is " +
                  first_words(end.output))
      .hint(kHint);
}

}  // namespace

std::vector<std::string> without_launch_options(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i].substr(0, arguments[i].find('='));
    const bool is_option = name == "--nproc" || name == "--max-restarts";
    if (is_option && name == arguments[i]) {
      ++i;
    } else if (!is_option) {
      kept.push_back(arguments[i]);
    }
  }
  return kept;
}

void use_packaged_mpi() {
  const std::filesystem::path root = package();
  if (root.empty()) return;
  // Variables for the machine's own MPI (such as a loaded module sets) would make the package's libraries
  // load its plugins.
  const std::pair<const char*, std::string> settings[] = {
      {"OPAL_PREFIX", root},
      {"PMIX_PREFIX", root},
      {"OMPI_MCA_mca_base_component_path", root / "lib/openmpi"},
      {"PMIX_MCA_mca_base_component_path", root / "lib/pmix"},
  };
  for (const auto& [name, value] : settings) environment::set(name, value);
}

bool is_under_launcher(int64_t nproc) {
  const comm::LaunchInfo info = comm::launch_info();
  if (nproc > 1 && info.has_launcher && info.size != nproc) {
    throw Error(ErrorKind::Config, "NPROC", "--nproc does not fit the launcher that started this process")
        .got("--nproc " + std::to_string(nproc) + " and " + std::to_string(info.size) + " rank(s)")
        .need("one of the two")
        .hint("under mpirun or srun leave out --nproc; in a Slurm batch script start the ranks with srun");
  }
  return info.has_launcher;
}

std::optional<int> relaunch(int64_t nproc, const std::vector<std::string>& arguments) {
  if (is_under_launcher(nproc) || nproc <= 1) return std::nullopt;
  return launch(nproc, arguments).exit_code;
}

JobEnd launch(int64_t nproc, const std::vector<std::string>& arguments) {
  const std::string self = program_path();
  if (self.empty()) {
    throw Error(ErrorKind::Config, "PROC", "cannot find out the path of this program")
        .hint("mount /proc, or start tessera by its full path");
  }
  if (nproc > 1) check_launch(nproc);
  if (nproc > usable_cores()) {
    log::warn("--nproc " + std::to_string(nproc) + " starts more ranks than this process has cores (" +
              std::to_string(usable_cores()) + "): they share cores, which makes the run slower");
  }
  LaunchJob job;
  job.num_ranks = nproc;
  job.has_launcher = nproc > 1;
  job.start_timeout_s = start_timeout_s(nproc);
  job.shows_output = environment::get_flag("TESSERA_LAUNCHER_OUTPUT").value_or(false);
  std::optional<SessionFolder> session;
  if (job.has_launcher) {
    session.emplace("the temporary files of several ranks", session_bytes(nproc));
    configure_mpi(*session);
    job.command = {mpirun(), "--oversubscribe", "--bind-to", "none", "-n", std::to_string(nproc)};
  }
  job.command.push_back(self);
  for (const std::string& argument : without_launch_options(arguments)) job.command.push_back(argument);
  RankLinks links;
  const LauncherEnd end = run_launcher(job, links);
  const int code = job_exit_code(end, links, nproc);
  const auto& failure = links.first_failure();
  // A rank that was asked to stop by itself tells so by its exit code.
  const bool is_stopped = failure && failure->exit_code &&
                          (*failure->exit_code == train::kStoppedExitCode || *failure->exit_code > 128);
  return {code, end.signal_to_us != 0 || is_stopped};
}

// The time is long, since libraries may lie on a slow disk and many ranks share the cores.
double start_timeout_s(int64_t num_ranks) {
  const double usual = 40.0 + static_cast<double>(num_ranks);
  return environment::get_seconds("TESSERA_START_TIMEOUT").value_or(usual);
}

double own_start_timeout_s() {
  return has_launching_process() ? 0.0 : start_timeout_s(comm::launch_info().size);
}

}  // namespace tessera::cli
