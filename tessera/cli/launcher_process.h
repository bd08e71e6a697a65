// The launcher as a child process, with what it says.
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
  bool has_launcher = true;  // the command starts the ranks; else it is the only one
  double start_timeout_s = 0.0;
  bool shows_output = false;
};

struct LauncherEnd {
  int status = 0;                // as waitpid() gives it
  int signal_to_us = 0;          // the last one by which this process was asked to stop
  bool has_not_started = false;  // ranks were missing when the time was over
  std::string missing;           // these
  std::string output;            // the beginning of what launcher and libraries wrote
};

// Runs the job's command (its first word is looked up in PATH, and in the usual folders where there is none)
// and waits for its end; it ends when this process does. Signals that this process is sent are passed on to
// the ranks, past the launcher, which would give them no time to save: the keys of the terminal and a batch
// system's signals to all processes do not reach it. Before all ranks have joined, a request to stop ends the
// job. Where a rank ended badly, or ranks have not started some seconds after `start_timeout_s`, what is left
// is ended after a while; ranks that run but cannot join are let alone. Throws Error(Config) when it cannot
// be started.
LauncherEnd run_launcher(const LaunchJob& job, RankLinks& links);

}  // namespace tessera::cli
