#include "tessera/comm/nccl/watchdog.h"

#include <chrono>

#include "tessera/device/device.h"

namespace tessera::comm::detail {

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::add(Watched* group) {
  const std::lock_guard<std::mutex> lock(groups_mutex_);
  groups_.insert(group);
  if (!thread_.joinable()) thread_ = std::thread(&Watchdog::run, this);
}

void Watchdog::remove(Watched* group) {
  const std::lock_guard<std::mutex> lock(groups_mutex_);
  groups_.erase(group);
}

void Watchdog::wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_awake_) return;
    is_awake_ = true;
  }
  changed_.notify_all();
}

void Watchdog::fail(const Error& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.has_value()) failure_ = error;
}

void Watchdog::check() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.has_value()) throw *failure_;
}

void Watchdog::run() {
  constexpr std::chrono::milliseconds kPeriod{2};
  use_device(device_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_stopping_) {
    changed_.wait(lock, [this] { return is_awake_ || is_stopping_; });
    // An operation that is opened from here on wakes the thread for another round.
    is_awake_ = false;
    lock.unlock();
    bool is_open = false;
    {
      // poll() calls fail(), which takes mutex_; groups_mutex_ keeps remove() waiting until the group is not
      // in use here.
      const std::lock_guard<std::mutex> groups(groups_mutex_);
      for (Watched* group : groups_) is_open = group->poll() || is_open;
    }
    lock.lock();
    is_awake_ = is_awake_ || is_open;
    if (is_open) changed_.wait_for(lock, kPeriod, [this] { return is_stopping_; });
  }
}

}  // namespace tessera::comm::detail
