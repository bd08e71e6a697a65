// The thread on which the collectives of a group run.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/comm/pending_work.h"

namespace tessera::comm::detail {

// [Note: a thread for each group] The operations of a group run one after another, in the order of their
// submission, on a thread of the group's own. So they overlap with compute, and an operation that waits for
// its peers holds up no other group. If several groups shared a thread, ranks that submit to two groups in
// different orders would wait for each other forever, although the order within each group is the same on all
// of them. Pipelines do that: some ranks gather parameters while others wait for their messages.

// Runs operations on a thread, which starts with the first of them. Submit from one thread at a time.
class Executor {
 public:
  Executor();
  // Waits for the submitted operations to end, 5 s at most and not at all after a hang. A thread that is
  // still in an operation then is left behind.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs `operation` on the thread, then finishes `work` with the exception that it threw, if any.
  void submit(std::shared_ptr<PendingWork> work, std::function<void()> operation);

 private:
  struct State;
  static void run(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tessera::comm::detail
