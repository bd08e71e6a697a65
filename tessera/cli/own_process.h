// Runs this program once more, and takes what it prints.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

std::vector<std::string> lines_of(const std::string& text);

struct OwnProcess {
  int exit_code = 0;  // 128 + the signal that ended it
  bool is_timed_out = false;
  std::string output, errors;  // of both streams, the last 64 KiB

  // Returns the error that it told last, or else how it ended.
  std::string problem() const;
};

// Runs this program with these arguments, and waits for its end; after `limit_s` seconds it is asked to end,
// and made to some seconds later. The keys of the terminal reach it as they reach this process. Throws
// Error(Config) if it cannot be started.
OwnProcess run_own_process(const std::vector<std::string>& arguments, double limit_s);

}  // namespace tessera::cli
