#include "tessera/cli/launcher_process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "tessera/cli/rank_link.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/process_status.h"

namespace tessera::cli {
namespace {

// What this process was sent and has not passed on yet, and how often it was asked to stop in all.
volatile std::sig_atomic_t last_signal = 0, num_stops = 0, num_saves = 0;

// The launcher's end: unlike the others it is not kept from it.
constexpr int kEndSignal = SIGHUP;

void note(int signal) {
  if (signal == SIGUSR1) {
    num_saves = num_saves + 1;
  } else {
    last_signal = signal;
    num_stops = num_stops + 1;
  }
}

void note_signals() {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction inherited = {};
    // What is ignored stays so (nohup).
    if (sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

Error cannot_start(const char* what) {
  return Error(ErrorKind::Config, "LAUNCHER", std::string(what) + ": " + std::strerror(errno));
}

struct Child {
  pid_t id;
  int output;  // what it writes
};

Child start(const std::vector<std::string>& command, bool has_launcher) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // The second pipe tells whether exec failed: closed by a successful one.
  int output[2], failure[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(failure, O_CLOEXEC) != 0)
    throw cannot_start("cannot make a pipe");
  environment::set_default("PATH", "/usr/local/bin:/usr/bin:/bin");
  note_signals();
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw cannot_start("cannot start a process");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, kEndSignal);
    if (getppid() != parent) _exit(1);
    setsid();  // without a terminal of its own, from which the first rank may then read that of this process
    std::signal(kEndSignal, SIG_DFL);
    sigset_t kept;
    sigemptyset(&kept);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&kept, signal);
    if (has_launcher) sigprocmask(SIG_BLOCK, &kept, nullptr);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    execvp(words[0], words.data());
    const int error_number = errno;
    (void)!write(failure[1], &error_number, sizeof error_number);
    _exit(127);
  }
  close(output[1]);
  close(failure[1]);
  int error_number = 0;
  const bool has_failed = read(failure[0], &error_number, sizeof error_number) == sizeof error_number;
  close(failure[0]);
  if (!has_failed) return {child, output[0]};
  waitpid(child, nullptr, 0);
  errno = error_number;
  throw cannot_start("cannot start mpirun")
      .need("OpenMPI for --nproc")
      .hint("install openmpi-bin, or start the ranks by your cluster's own launcher");
}

// Reads what is there, keeping the beginning; whether more may come.
bool read_output(int file, std::string& kept, bool shows_output) {
  constexpr size_t kMostKept = 64 << 10;
  char block[4096];
  for (;;) {
    const ssize_t length = read(file, block, sizeof block);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return length < 0 && errno == EAGAIN;
    if (shows_output) (void)!write(STDERR_FILENO, block, static_cast<size_t>(length));
    if (kept.size() < kMostKept) kept.append(block, static_cast<size_t>(length));
  }
}

pid_t parent_of(pid_t id) { return process_status(id).parent; }

// Whether a process of this program runs below `launcher`, whether or not it has joined. No, where the system
// does not show processes.
bool has_rank_below(pid_t launcher) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (self.empty()) return false;
  for (std::filesystem::directory_iterator entry("/proc", ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (std::filesystem::read_symlink("/proc/" + name + "/exe", gone) != self) continue;
    for (pid_t id = parent_of(std::atoi(name.c_str())); id > 1; id = parent_of(id)) {
      if (id == launcher) return true;
    }
  }
  return false;
}

}  // namespace

LauncherEnd run_launcher(const LaunchJob& job, RankLinks& links) {
  constexpr int kPollMs = 200;
  constexpr double kPatience_s = 10.0;  // between one step to an end and the next, harder one
  LauncherEnd end;
  int stops_passed_on = 0, saves_passed_on = 0;
  const Child child = start(job.command, job.has_launcher);
  fcntl(child.output, F_SETFL, O_NONBLOCK);
  const Timer since_start;
  Timer since_step;
  int step = 0;  // towards the end of what does not end by itself
  bool has_output = true;
  bool counts_ranks = links.listens();  // else none can join
  for (;;) {
    std::vector<pollfd> waits;
    if (has_output) waits.push_back({child.output, POLLIN, 0});
    for (const int descriptor : links.descriptors()) waits.push_back({descriptor, POLLIN, 0});
    poll(waits.data(), waits.size(), kPollMs);
    links.update();
    const bool have_started = links.num_started() >= job.num_ranks;
    // A rank that is not ready for it would end.
    if (saves_passed_on < num_saves && have_started) links.pass_on(SIGUSR1, saves_passed_on = num_saves);
    if (stops_passed_on < num_stops) {
      links.pass_on(last_signal, stops_passed_on = num_stops);
      if (!have_started) kill(child.id, kEndSignal);
    }
    if (has_output) has_output = read_output(child.output, end.output, job.shows_output);
    const pid_t ended = waitpid(child.id, &end.status, WNOHANG);
    if (ended == child.id || (ended < 0 && errno != EINTR)) break;

    if (step == 0) {
      const double late_s = since_start.seconds() - job.start_timeout_s;
      if (counts_ranks && !have_started && late_s > 0.0) {
        // Where none can join (a launcher that clears their environment) they run all the same.
        if (links.num_joined() == 0 && has_rank_below(child.id)) counts_ranks = false;
        end.has_not_started = counts_ranks && late_s > kPatience_s;
        if (end.has_not_started) end.missing = links.missing(job.num_ranks);
      }
      if (end.has_not_started || links.first_failure()) {
        ++step;
        since_step.restart();
      }
      if (!end.has_not_started) continue;
    } else if (since_step.seconds() < kPatience_s) {
      continue;
    }
    kill(child.id, step == 1 ? kEndSignal : SIGKILL);
    ++step;
    since_step.restart();
  }
  end.signal_to_us = last_signal;
  links.update();
  if (has_output) read_output(child.output, end.output, job.shows_output);
  close(child.output);
  // Whose launcher is gone cannot go on.
  links.kill_all(SIGKILL);
  return end;
}

}  // namespace tessera::cli
