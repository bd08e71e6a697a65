// What joins the ranks of `--nproc` to the process that started them. A rank takes over that process's
// standard output and has its own lines go to that process's standard error, past the launcher between them;
// and it tells how it ends, so that an end without a word is noticed and named.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tessera::cli {

// How a rank ended.
struct RankEnd {
  int64_t rank = 0;
  std::optional<int> exit_code;  // as the rank told it; none: it ended without a word
};

// The starting process's side.
class RankLinks {
 public:
  // Listens under a name of its own that ranks find in their environment (this process's environment is
  // changed). Where the system refuses, no rank will join, and its output stays with the launcher.
  RankLinks();
  ~RankLinks();
  RankLinks(const RankLinks&) = delete;
  RankLinks& operator=(const RankLinks&) = delete;

  // Whether ranks can join at all.
  bool listens() const { return listener_ >= 0; }
  // Descriptors to wait on for something to read.
  std::vector<int> descriptors() const;
  // Takes in new ranks and what ranks told; never waits.
  void update();

  int64_t num_joined() const { return num_joined_; }
  // The first end that was not a good one.
  const std::optional<RankEnd>& first_failure() const { return first_failure_; }
  // Ends the ranks that live on.
  void kill_all(int signal) const;

 private:
  struct Rank {
    pid_t process = 0;
    std::optional<int64_t> number;  // none until it has sent it: it has not joined
    bool has_told = false;
  };
  void accept_ranks();

  int listener_ = -1;
  int64_t num_joined_ = 0;
  std::map<int, Rank> ranks_;  // by socket
  std::optional<RankEnd> first_failure_;
};

// The rank's side. In a process that was not started by --nproc both do nothing.
// Takes the streams over; whether this is a rank of --nproc. Call it before anything is said.
bool join_launching_process(int64_t rank);
// Says that this rank ends with `exit_code`, having told the user why.
void tell_end(int exit_code);

}  // namespace tessera::cli
