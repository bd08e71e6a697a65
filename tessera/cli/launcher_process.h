// Runs the launcher as a child process and watches it and the ranks.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tessera::cli {

class RankLinks;

struct LaunchJob {
  std::vector<std::string> command;
  int64_t num_ranks = 1;
  bool has_launcher = true;  // the command is a launcher that starts the ranks; else it is the only rank
  double start_timeout_s = 0.0;
  bool shows_output = false;
};

struct LauncherEnd {
  int status = 0;                // as waitpid() gives it; of the launcher, or of the only rank
  int signal_to_us = 0;          // last signal by which this process was asked to stop, or 0
  bool has_not_started = false;  // ranks had not started when the time was over
  std::string missing;           // the ranks that keep the others from starting (RankLinks::missing())
  std::string output;            // beginning of the output of the launcher and libraries
};

// Runs the job's command and waits for its end. The command's first word is looked up in PATH, or in the
// usual folders if there is no PATH. The command ends when this process does.
// Signals that this process is sent are passed on to the ranks past the launcher, which would give them no
// time to save; neither the keys of the terminal nor a batch system's signals to all processes reach the
// launcher. A request to stop that comes before all ranks have started ends the job.
// If a rank ended badly, or if ranks have not started some seconds after `start_timeout_s`, the rest of the
// job is ended after a while; ranks that run but cannot join are let alone. Throws Error(Config) when the
// command cannot be started.
LauncherEnd run_launcher(const LaunchJob& job, RankLinks& links);

}  // namespace tessera::cli
