// The thread that looks after what runs on a device.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <c10/core/Device.h>

#include "tessera/core/error.h"

namespace tessera::comm::detail {

// What it looks after. Registers itself for its life.
class Watched {
 public:
  virtual ~Watched() = default;
  // Ends what is over, late or has failed. Returns whether anything is still open. On the watchdog's thread.
  virtual bool poll() = 0;
};

// One for all groups of a process, which has one device. Thread-safe.
class Watchdog {
 public:
  explicit Watchdog(c10::Device device) : device_(device) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void add(Watched* group);
  // After it, the group is not polled.
  void remove(Watched* group);
  // Something has been opened.
  void wake();

  // No group can be used any more: what the device holds is of no use. The first error stays.
  void fail(const Error& error);
  // Throws that error, if any.
  void check() const;

 private:
  void run();

  const c10::Device device_;
  std::mutex groups_mutex_;  // held while groups are polled
  std::set<Watched*> groups_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_awake_ = false, is_stopping_ = false;
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace tessera::comm::detail
