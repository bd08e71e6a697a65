// Which ranks of a job have come, for the case that not all of them do.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::comm {

struct LaunchInfo;

// Before MPI has started ranks have no way to each other. So each leaves a file, with its machine and
// process, in a folder of the job's that all see; who waits too long looks there.
class StartRoll {
 public:
  // `place`: a path on a file system that the ranks share; the folder is made in the nearest folder above it
  // that there is, not in itself, where a job that is killed would leave it. Where
  // the launcher gives the job no name, or nothing can be written there, nothing is known.
  StartRoll(const LaunchInfo& info, const std::string& place);
  // Takes this rank's file away.
  ~StartRoll();
  StartRoll(const StartRoll&) = delete;
  StartRoll& operator=(const StartRoll&) = delete;

  // Takes all of the job's files away: the job ends.
  void clear();

  // "rank 2, rank 3 have not come; there are rank 0 (process 77 on n01), rank 1 (process 78 on n01)", or
  // which of them is stopped or has ended on this machine; empty where nothing is known.
  std::string text() const;

 private:
  const int64_t num_ranks_;
  std::string folder_, file_;
};

// The name that the launcher gives the job, the same on all of its ranks; empty for none.
std::string launched_job();

}  // namespace tessera::comm
