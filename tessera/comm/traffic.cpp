#include "tessera/comm/traffic.h"

#include <chrono>
#include <utility>

namespace tessera::comm::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the time until the end of its scope to the count, also when an exception ends it.
class WaitTimer {
 public:
  explicit WaitTimer(TrafficCount& count) : count_(count) {}
  ~WaitTimer() {
    count_.wait_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count();
  }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  TrafficCount& count_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

CountedWork::CountedWork(std::shared_ptr<Work> work, std::shared_ptr<TrafficCount> count)
    : Work(work->description()), work_(std::move(work)), count_(std::move(count)) {}

void CountedWork::wait() {
  const WaitTimer timer(*count_);
  work_->wait();
}

void CountedWork::wait_host() {
  const WaitTimer timer(*count_);
  work_->wait_host();
}

std::shared_ptr<Work> CountedWork::uncounted(const std::shared_ptr<Work>& work) {
  const auto* const counted = dynamic_cast<const CountedWork*>(work.get());
  return counted == nullptr ? work : counted->work_;
}

}  // namespace tessera::comm::detail
