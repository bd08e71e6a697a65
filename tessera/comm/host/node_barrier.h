// Where the ranks of one machine wait for each other.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::comm::detail {

// Lies in memory that all ranks map, and is valid there when all its bytes are zero: ranks are threads or
// processes. A waiting rank looks for a moment, then sleeps in the kernel (futex), so that it takes no core
// from the ranks and threads that compute.
class NodeBarrier {
 public:
  // Returns when all `num_ranks` ranks have called it; what they wrote before is then visible to all. Throws
  // Error(Peer) when a rank gave up.
  void meet(int64_t num_ranks);
  // Has every rank throw that waits here, now or later; for a rank that cannot go on.
  void give_up(int64_t rank);

 private:
  void check_alive() const;

  alignas(64) std::atomic<uint32_t> arrived_;
  alignas(64) std::atomic<uint32_t> round_;
  alignas(64) std::atomic<uint32_t> failed_;  // the rank that gave up, plus one
};

}  // namespace tessera::comm::detail
