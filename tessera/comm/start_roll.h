// Tells which ranks of a job have come, for the case that not all of them do.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::comm {

struct LaunchInfo;

// Before MPI has started, ranks cannot reach each other. So each leaves a file, with its machine and process,
// in a folder of the job that all see, and a rank that waits too long looks there.
class StartRoll {
 public:
  // `place` is a path on a file system that the ranks share. The job's folder is made in the nearest existing
  // folder above `place`, not in `place` itself, where a killed job would leave it behind. If the launcher
  // gives the job no name, or the folder cannot be written, the roll names no ranks.
  StartRoll(const LaunchInfo& info, const std::string& place);
  // Removes this rank's file.
  ~StartRoll();
  StartRoll(const StartRoll&) = delete;
  StartRoll& operator=(const StartRoll&) = delete;

  // Removes the files of all ranks, for a rank that ends the job.
  void clear();

  // Says who is missing: "rank 2, rank 3 have not come; there are rank 0 (process 77 on n01), rank 1 (process
  // 78 on n01)", and which ranks of this machine are stopped or have ended. Empty if nothing is known.
  std::string text() const;

 private:
  const int64_t num_ranks_;
  std::string folder_, file_;
};

// The name that the launcher gives the job, the same on all of its ranks; empty for none.
std::string launched_job();

}  // namespace tessera::comm
