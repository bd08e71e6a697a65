#include "tessera/comm/host/node_barrier.h"

#include <climits>
#include <string>
#include <sys/syscall.h>

#include <linux/futex.h>
#include <unistd.h>

#include "tessera/core/error.h"

namespace tessera::comm::detail {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4,
              "ranks of other processes and the kernel see the same four bytes");

// Number of looks at the round before a rank sleeps. They take a few microseconds, in which a peer arrives
// that is already in the same place.
constexpr int kNumLooks = 100;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Sleeps while `word` holds `value`; may wake early.
void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT, value, nullptr, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void NodeBarrier::check_alive() const {
  const uint32_t failed = failed_.load(std::memory_order_acquire);
  if (failed == 0) return;
  throw Error(ErrorKind::Peer, "GAVE-UP",
              "rank " + std::to_string(failed - 1) + " of this group met an error in a collective");
}

void NodeBarrier::meet(int64_t num_ranks) {
  // The round is read before failed_. A rank that gives up sets failed_ and then changes the round: so either
  // it is seen here, or the round that is waited for below has changed.
  const uint32_t round = round_.load(std::memory_order_acquire);
  check_alive();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(num_ranks)) {
    // The last rank has acquired what all others wrote before they arrived, and releases it with the new
    // round, which they acquire. It resets the count first: no rank arrives for the next meeting before it
    // sees the new round.
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    wake_all(round_);
    return;
  }
  for (int look = 0; look < kNumLooks; ++look) {
    if (round_.load(std::memory_order_acquire) != round) break;
    relax();
  }
  while (round_.load(std::memory_order_acquire) == round) sleep_while(round_, round);
  check_alive();
}

void NodeBarrier::give_up(int64_t rank) {
  uint32_t nobody = 0;
  failed_.compare_exchange_strong(nobody, static_cast<uint32_t>(rank) + 1, std::memory_order_acq_rel);
  // A changed round ends every wait. A rank that is about to fall asleep does not: the kernel compares the
  // word with the round that the rank waits for.
  round_.fetch_add(1, std::memory_order_acq_rel);
  wake_all(round_);
}

}  // namespace tessera::comm::detail
