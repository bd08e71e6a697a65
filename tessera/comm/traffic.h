// Counts what a group's operations send and how long their callers wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/work.h"

namespace tessera::comm {

// The traffic of one rank in one group, since the group was made.
struct Traffic {
  // Bytes by the algorithms that send least (Thakur et al., "Optimization of Collective Communication
  // Operations in MPICH", 2005): of n ranks each sends (n - 1) / n of what an all-gather gathers or a
  // reduce-scatter reduces, twice that in an all-reduce, and all of a message. What ranks of one machine
  // share in memory counts alike, although nothing is sent.
  int64_t bytes_sent = 0;
  // Seconds that calling threads have spent in wait() and in calls that wait.
  double wait_s = 0.0;

  Traffic& operator+=(const Traffic& other) {
    bytes_sent += other.bytes_sent;
    wait_s += other.wait_s;
    return *this;
  }
  Traffic operator-(const Traffic& before) const {
    return {bytes_sent - before.bytes_sent, wait_s - before.wait_s};
  }
};

namespace detail {

// The counters of a group. Its operations share them, and may outlive it.
struct TrafficCount {
  std::atomic<int64_t> bytes_sent{0};
  std::atomic<int64_t> wait_ns{0};
  // The counters of groups that were split off, by name. Only the thread that splits uses this.
  std::vector<std::pair<std::string, std::shared_ptr<TrafficCount>>> parts;

  Traffic sum() const { return {bytes_sent.load(), static_cast<double>(wait_ns.load()) * 1e-9}; }
};

// An operation whose waits are counted.
class CountedWork : public Work {
 public:
  CountedWork(std::shared_ptr<Work> work, std::shared_ptr<TrafficCount> count);
  void wait() override;
  void wait_host() override;
  bool is_done() const override { return work_->is_done(); }

  // Gives the operation that `work` wraps, or `work` itself: for waits that hold up no caller.
  static std::shared_ptr<Work> uncounted(const std::shared_ptr<Work>& work);

 private:
  const std::shared_ptr<Work> work_;
  const std::shared_ptr<TrafficCount> count_;
};

}  // namespace detail
}  // namespace tessera::comm
