// The launcher as a child process, with what it says.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tessera::cli {

class RankLinks;

struct LauncherEnd {
  int status = 0;                // as waitpid() gives it
  int signal_to_us = 0;          // the last one that this process was sent and passed on
  bool has_not_started = false;  // ranks were missing when the time was over
  std::string output;            // the beginning of what launcher and libraries wrote
};

// Runs `command` (its first word is looked up in PATH, and in the usual folders where there is none), passes
// signals on to it and waits for its end; it ends when this process does. Where a rank ended badly, or
// `num_ranks` ranks have not joined some seconds after `start_timeout_s`, what is left is ended after a
// while; ranks that run but cannot join are let alone. Throws Error(Config) when it cannot be started.
LauncherEnd run_launcher(const std::vector<std::string>& command, RankLinks& links, int64_t num_ranks,
                         double start_timeout_s, bool shows_output);

}  // namespace tessera::cli
