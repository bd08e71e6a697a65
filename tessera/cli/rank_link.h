// What joins the ranks of `--nproc` to the process that started them. A rank takes over that process's
// standard output, the first one its standard input too, and has its own lines go to that process's standard
// error, past the launcher between them; and it tells how it ends, so that an end without a word is noticed
// and named.
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
  pid_t process = 0;
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
  // Those that have met the others.
  int64_t num_started() const { return num_started_; }
  // "rank 1 (process 77 on n01, stopped), rank 2": the ranks that keep the others from starting, as far as is
  // known.
  std::string missing(int64_t num_ranks) const;
  // The first end that was not a good one: as a rank told it, or without a word.
  const std::optional<RankEnd>& first_failure() const { return first_failure_ ? first_failure_ : ended_; }
  // Of a rank that has joined, also when it has ended; 0 for another one.
  pid_t process_of(int64_t rank) const;
  // Ends the ranks that live on.
  void kill_all(int signal) const;
  // Passes on to the ranks the `count`-th request that this process was sent (train/run_signals.h): to stop
  // to each of them, as each counts how often; to save to the first one, at whose word all save.
  void pass_on(int signal, int count) const;

 private:
  struct Rank {
    pid_t process = 0;
    std::optional<int64_t> number;  // none until it has sent it: it has not joined
    bool has_started = false, has_told = false;
  };
  void accept_ranks();
  // Takes what a rank has sent since; false where it has ended.
  bool take(int socket, Rank& rank);

  int listener_ = -1;
  int64_t num_joined_ = 0, num_started_ = 0;
  std::map<int, Rank> ranks_;           // by socket
  std::map<int64_t, pid_t> processes_;  // of all ranks that have joined
  std::optional<RankEnd> first_failure_;
  std::optional<RankEnd> ended_;  // the first that was ended since another one has failed
};

// The rank's side. In a process that was not started by --nproc they do nothing.
// Whether this process has joined one that started it.
bool has_launching_process();
// Takes the streams over; whether this is a rank of --nproc. Call it before anything is said.
bool join_launching_process(int64_t rank);
// Says that this rank has met the others.
void tell_started();
// Says that this rank ends with `exit_code`, having told the user why.
void tell_end(int exit_code);

}  // namespace tessera::cli
