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

#include "tessera/cli/program.h"
#include "tessera/cli/rank_link.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"

namespace tessera::cli {
namespace {

// Written by the signal handler: the last signal that asked to stop, and how often this process was asked to
// stop and to save in all. Requests compares the counts with those it has passed on.
volatile std::sig_atomic_t last_signal = 0, num_stops = 0, num_saves = 0;

// The signal that ends the launcher. It is the only one of the signals below that is not blocked in the
// launcher.
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
    // A signal that was ignored when the program started (nohup) stays ignored.
    if (sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

Error cannot_start(const char* what) {
  return Error(ErrorKind::Config, "LAUNCHER", std::string(what) + ": " + std::strerror(errno));
}

struct Child {
  pid_t id;
  int output;  // read end of its standard output and error
};

// [Note: how signals reach the ranks]
// mpirun would pass a signal on and end the ranks soon after, which leaves them no time to save. So no
// request may reach it:
// - it runs in a session of its own without a controlling terminal, so that Ctrl-C reaches this process only;
// - it blocks SIGINT, SIGTERM, SIGUSR1 and SIGUSR2, since batch systems signal every process of a job.
// This process takes the requests and sends them to the ranks itself (RankLinks::pass_on()). Only SIGHUP
// still ends the launcher, and with it the ranks: this process sends it, and the kernel does if this process
// dies.
Child start(const std::vector<std::string>& command, bool has_launcher) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // The second pipe tells whether exec failed: a successful exec closes it, a failed one is followed by
  // errno.
  int output[2], failure[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(failure, O_CLOEXEC) != 0)
    throw cannot_start("cannot make a pipe");
  environment::set_default("PATH", "/usr/local/bin:/usr/bin:/bin");
  // The handlers are set before the fork, so that no signal is lost between.
  note_signals();
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw cannot_start("cannot start a process");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, kEndSignal);
    if (getppid() != parent) _exit(1);  // the parent died before prctl(), so no signal will come
    // A process without a controlling terminal may read any terminal, so the first rank can read this
    // process's; as a background process of the same session it would be stopped.
    setsid();
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
      .hint("install openmpi-bin, or start the ranks with your cluster's own launcher");
}

// Reads the output that is there and keeps its beginning; returns whether more may come.
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

// Returns whether a process of this program runs below `launcher`, whether or not it has joined. Returns
// false if the system does not show processes.
bool has_rank_below(pid_t launcher) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::canonical(program_path(), ignored);
  if (ignored) return false;
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

// Counts the requests of signals that have been passed on.
struct Requests {
  int stops = 0, saves = 0;

  // `have_started`: all ranks have.
  void pass_on(const RankLinks& links, bool have_started, pid_t launcher) {
    // A rank that has not started is not ready for SIGUSR1 and would end, so a request to save waits until
    // all have started.
    if (saves < num_saves && have_started) links.pass_on(SIGUSR1, saves = num_saves);
    // Ranks that have started are asked to stop. If some have not, there is nothing to save, and they may not
    // have joined: the launcher ends all of them.
    if (stops >= num_stops) return;
    links.pass_on(last_signal, stops = num_stops);
    if (!have_started) kill(launcher, kEndSignal);
  }
};

}  // namespace

// [Note: how a job is ended]
// The loop ends when the command ends. A job that does not end by itself is ended by force, and `step` counts
// the measures against it:
// - Step 0: all is well. When a rank ends badly, step 1 begins, and the other ranks get kPatience_s to end,
// as
//   mpirun usually makes them. When ranks have not started in time, step 1 begins too, but the launcher is
//   sent kEndSignal at once, since ranks that wait for others at their start have nothing to save.
// - Step 1: after kPatience_s the launcher is sent kEndSignal, on which it ends its ranks.
// - Later steps: after each further kPatience_s the launcher is killed.
// A signal to this process does not change `step`: ranks that have started take the request and decide when
// to end.
LauncherEnd run_launcher(const LaunchJob& job, RankLinks& links) {
  constexpr int kPollMs = 200;
  constexpr double kPatience_s = 10.0;  // between one measure and the next, harder one
  LauncherEnd end;
  Requests requests;
  const Child child = start(job.command, job.has_launcher);
  fcntl(child.output, F_SETFL, O_NONBLOCK);
  const Timer since_start;
  Timer since_step;
  int step = 0;
  bool has_output = true;
  bool counts_ranks = links.listens();  // false: ranks cannot join, so their number says nothing
  for (;;) {
    std::vector<pollfd> waits;
    if (has_output) waits.push_back({child.output, POLLIN, 0});
    for (const int descriptor : links.descriptors()) waits.push_back({descriptor, POLLIN, 0});
    poll(waits.data(), waits.size(), kPollMs);
    links.update();
    const bool have_started = links.num_started() >= job.num_ranks;
    requests.pass_on(links, have_started, child.id);
    if (has_output) has_output = read_output(child.output, end.output, job.shows_output);
    const pid_t ended = waitpid(child.id, &end.status, WNOHANG);
    if (ended == child.id || (ended < 0 && errno != EINTR)) break;

    if (step == 0) {
      const double late_s = since_start.seconds() - job.start_timeout_s;
      if (counts_ranks && !have_started && late_s > 0.0) {
        // Ranks that cannot join, since the launcher clears their environment, run all the same and are let
        // alone.
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
  // The last messages and output may have come after the last poll.
  links.update();
  if (has_output) read_output(child.output, end.output, job.shows_output);
  close(child.output);
  // Ranks that live on cannot go on without their launcher.
  links.kill_all(SIGKILL);
  return end;
}

}  // namespace tessera::cli
