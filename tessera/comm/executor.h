// The thread that talks to the transport.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/comm/work.h"

namespace tessera::comm::detail {

// Runs operations one after another, in the order of their submission, on a thread of its own: so
// collectives overlap with compute, and the transport is never entered by two threads. One executor
// serves a communicator and all that were split from it. Thread-safe.
class Executor {
 public:
  Executor();
  // Finishes what was submitted. A thread that is stuck in the transport (after a timeout) is left behind.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void submit(std::shared_ptr<Work> work, std::function<void()> operation);

 private:
  struct State;
  static void run(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tessera::comm::detail
