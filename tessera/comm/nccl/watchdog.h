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

// A group whose operations the watchdog looks after. It adds and removes itself for its life.
class Watched {
 public:
  virtual ~Watched() = default;
  // Ends the operations that are over, late or have failed. Returns whether any is still open. Called on the
  // watchdog's thread.
  virtual bool poll() = 0;
};

// Looks after all groups of a process, which has one device. Its thread starts with the first group.
// Thread-safe.
class Watchdog {
 public:
  explicit Watchdog(c10::Device device) : device_(device) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void add(Watched* group);
  // When it returns, `group` is not polled any more.
  void remove(Watched* group);
  // Tells the thread that an operation has been opened.
  void wake();

  // Makes all groups of the process unusable, since what the device holds is of no use any more. The first
  // error stays.
  void fail(const Error& error);
  // Throws the error that fail() was given, if any.
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
