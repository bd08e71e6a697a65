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

// [Note: a thread for each group] Operations run one after another, in the order of their submission, on a
// thread of the group's own: so they overlap with compute, and an operation that waits for its peers keeps no
// other group waiting. With one thread for several groups, ranks that submit to two groups in another order
// would wait for each other for ever, though each group's own order is the same on all of them: as in a
// pipeline, where some ranks gather parameters while others wait for their messages.

// The thread starts with the first operation. Submit from one thread at a time.
class Executor {
 public:
  Executor();
  // Finishes what was submitted. A thread that is stuck in an operation (after a timeout) is left behind.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void submit(std::shared_ptr<PendingWork> work, std::function<void()> operation);

 private:
  struct State;
  static void run(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tessera::comm::detail
