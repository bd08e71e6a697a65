// Messages between ranks, over MPI.
#pragma once

#include <memory>
#include <thread>

#include "tessera/comm/mpi/mpi_check.h"
#include "tessera/comm/p2p_batch.h"

namespace tessera::comm::detail {

// [Note: messages over MPI] A thread starts all messages of a batch at once and advances those of all batches
// and groups until they have ended, so none waits for another one. It looks for the size of what arrives
// before it receives (MPI_Improbe), so that two ends of different sizes are an error that names both, and a
// message that is too long overwrites nothing. The thread sleeps while nothing is in flight. Otherwise it
// polls without a pause at first, then every 50 microseconds, so that a long wait for a message takes no core
// from the computation.

// Carries the messages of all groups of a process. The thread starts with the first message. Thread-safe.
class MessageThread {
 public:
  MessageThread();
  // Waits for the messages in flight, 5 s at most and not at all after a hang; those that do not end get
  // Error(Peer).
  ~MessageThread();
  MessageThread(const MessageThread&) = delete;
  MessageThread& operator=(const MessageThread&) = delete;

  // Messages with the same ends and tag meet in the order in which they are posted.
  void post(MPI_Comm comm, std::shared_ptr<P2pBatch> batch);

 private:
  struct State;
  static void run(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tessera::comm::detail
