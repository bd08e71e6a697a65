// Links the ranks of `--nproc` to the process that started them, past the launcher between them. A rank takes
// over that process's standard output, and the first rank its standard input too; the log lines of a rank go
// to that process's standard error. A rank also tells how it ends, so that an end without a word is noticed
// and named. [Note: link between a rank and its starter] in rank_link.cpp has the protocol.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tessera::cli {

// The end of a rank.
struct RankEnd {
  int64_t rank = 0;
  pid_t process = 0;
  std::optional<int> exit_code;  // the exit code that the rank told; nullopt if it ended without a word
};

// The side of the process that started the ranks.
class RankLinks {
 public:
  // Listens under a random name, which ranks find in their environment (this process's environment is
  // changed). If the system refuses, no rank will join, and the ranks' output stays with the launcher.
  RankLinks();
  ~RankLinks();
  RankLinks(const RankLinks&) = delete;
  RankLinks& operator=(const RankLinks&) = delete;

  // Returns whether ranks can join at all.
  bool listens() const { return listener_ >= 0; }
  // Returns the descriptors to poll for input before the next update().
  std::vector<int> descriptors() const;
  // Accepts new ranks and reads the messages of ranks. Never waits.
  void update();

  int64_t num_joined() const { return num_joined_; }
  // Returns the number of ranks that have met the others.
  int64_t num_started() const { return num_started_; }
  // Names the ranks that keep the others from starting, as far as is known: "rank 1 (process 77 on n01,
  // stopped), rank 2".
  std::string missing(int64_t num_ranks) const;
  // Returns the first bad end, as the rank told it or without a word; else the first rank that was ended by
  // others.
  const std::optional<RankEnd>& first_failure() const { return first_failure_ ? first_failure_ : ended_; }
  // Returns the process of a rank that has joined, even if it has ended; 0 for another rank.
  pid_t process_of(int64_t rank) const;
  // Sends `signal` to all ranks that have joined and still live.
  void kill_all(int signal) const;
  // Passes on to the ranks the `count`-th request that this process was sent (train/run/run_signals.h). A
  // request to stop goes to every rank, since each counts the requests; a request to save (SIGUSR1) goes to
  // the first rank only, at whose word all ranks save.
  void pass_on(int signal, int count) const;

 private:
  struct Rank {
    pid_t process = 0;
    std::optional<int64_t> number;  // none until the rank has sent it, and so has joined
    bool has_started = false, has_told = false;
  };
  void accept_ranks();
  // Reads all messages that a rank has sent so far; returns false if its socket is closed.
  bool take(int socket, Rank& rank);

  int listener_ = -1;
  int64_t num_joined_ = 0, num_started_ = 0;
  std::map<int, Rank> ranks_;           // by socket
  std::map<int64_t, pid_t> processes_;  // process of every rank that has joined
  std::optional<RankEnd> first_failure_;
  std::optional<RankEnd> ended_;  // the first rank that told train::kEndedByOthers
};

// The rank's side follows. In a process that was not started by --nproc these functions do nothing.
// Returns whether this process has joined one that started it.
bool has_launching_process();
// Takes over the streams of the process that started this one, and returns whether there is one. Must be
// called before anything is written.
bool join_launching_process(int64_t rank);
// Tells that this rank has met the others.
void tell_started();
// Tells that this rank ends with `exit_code` and has told the user why.
void tell_end(int exit_code);

}  // namespace tessera::cli
