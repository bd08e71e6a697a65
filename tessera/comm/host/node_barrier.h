// A barrier for the ranks of one machine.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::comm::detail {

// A barrier in memory that all ranks map; ranks are threads or processes. Memory of zeros is a barrier in its
// first state. A waiting rank spins for a few microseconds, then sleeps in the kernel (futex), so that it
// takes no core from the ranks and threads that compute.
class NodeBarrier {
 public:
  // Returns when all `num_ranks` ranks have called it; what they wrote before is then visible to all. Throws
  // Error(Peer) when a rank gave up.
  void meet(int64_t num_ranks);
  // Rank `rank`, which cannot go on, calls this: it makes meet() throw on every rank, in waits under way and
  // in later ones.
  void give_up(int64_t rank);

 private:
  void check_alive() const;

  alignas(64) std::atomic<uint32_t> arrived_;  // ranks that have come to the current meeting
  alignas(64) std::atomic<uint32_t> round_;    // counts the meetings; waiting ranks sleep on it
  alignas(64) std::atomic<uint32_t> failed_;   // the rank that gave up, plus one; 0 if none did
};

}  // namespace tessera::comm::detail
