#include "tessera/cli/rank_link.h"

#include <cstdint>
#include <functional>
#include <sys/wait.h>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace tessera::cli {
namespace {

// Processes that this one has started, which join it and end when it tells them to.
class Ranks {
 public:
  Ranks() { EXPECT_EQ(pipe(gate_), 0); }
  ~Ranks() {
    close(gate_[0]);
    close(gate_[1]);
  }
  void start(int64_t rank, const std::function<void()>& end) {
    const pid_t process = fork();
    if (process == 0) {
      char byte = 0;
      const bool has_joined = join_launching_process(rank) && read(gate_[0], &byte, 1) == 1;
      if (has_joined) end();
      _exit(0);
    }
    processes_.push_back(process);
    while (links.num_joined() < std::ssize(processes_)) {
      poll(nullptr, 0, 1);
      links.update();
    }
  }
  void end_all() {
    for (size_t i = 0; i < processes_.size(); ++i) EXPECT_EQ(write(gate_[1], "x", 1), 1);
    for (const pid_t process : processes_) EXPECT_EQ(waitpid(process, nullptr, 0), process);
    links.update();
    EXPECT_EQ(links.descriptors().size(), 1u) << "the listener alone";
  }

  RankLinks links;

 private:
  int gate_[2] = {-1, -1};
  std::vector<pid_t> processes_;
};

void ends_silently() {}

TEST(RankLink, ARanksWordCountsBeforeTheEndsThatFollowIt) {
  // Ranks are read in the order in which they have joined.
  for (const int64_t failing : {0, 1, 2}) {
    SCOPED_TRACE(failing);
    Ranks ranks;
    for (const int64_t rank : {0, 1, 2}) {
      if (rank == failing) {
        ranks.start(rank, [] { tell_end(6); });
      } else {
        ranks.start(rank, ends_silently);
      }
    }
    ranks.end_all();
    ASSERT_TRUE(ranks.links.first_failure());
    EXPECT_EQ(ranks.links.first_failure()->rank, failing);
    EXPECT_EQ(ranks.links.first_failure()->exit_code, 6);
  }
}

TEST(RankLink, AnEndWithoutAWordIsAFailure) {
  Ranks ranks;
  ranks.start(0, [] { tell_end(0); });
  ranks.start(1, ends_silently);
  ranks.end_all();
  ASSERT_TRUE(ranks.links.first_failure());
  EXPECT_EQ(ranks.links.first_failure()->rank, 1);
  EXPECT_FALSE(ranks.links.first_failure()->exit_code);
}

TEST(RankLink, GoodEndsAreNone) {
  Ranks ranks;
  for (const int64_t rank : {0, 1, 2}) ranks.start(rank, [] { tell_end(0); });
  ranks.end_all();
  EXPECT_FALSE(ranks.links.first_failure());
}

}  // namespace
}  // namespace tessera::cli
