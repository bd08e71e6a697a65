// Work that another thread ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "tessera/comm/work.h"
#include "tessera/core/error.h"

namespace tessera::comm::detail {

class PendingWork : public Work {
 public:
  // `place` is the operation's place in the flight recorder, -1 for none.
  PendingWork(std::string description, std::chrono::milliseconds timeout, int64_t place = -1)
      : Work(std::move(description)), timeout_(timeout), place_(place) {}

  void wait() override;
  bool is_done() const override;
  // Marks the work done, with an error or none. Call it once.
  void finish(std::exception_ptr error = nullptr);
  // Runs `next` with the work's error, or none: on the thread that ends the work, or at once if it has ended.
  // At most one `next` may be given.
  void then(std::function<void(std::exception_ptr)> next);
  // Throws the error that the work has ended with, if it has. Does not wait.
  void check() const;

 protected:
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Waits like wait(), but for as long as it takes: for work that another thread ends if it is late.
  void wait_for_end();
  // Says once in the machine's ranks what the work has waited for since `waited`, unless the delay is
  // excused.
  void tell_delay(std::chrono::milliseconds waited) const;
  // Notes the hang of work whose timeout has passed and gives its Error(Hang); gives none if the delay is
  // excused (flight::Finding).
  std::optional<Error> hang() const;

 private:
  // Waits while is_open(lock) is true, then throws the work's error, if any.
  void wait_while(const std::function<bool(std::unique_lock<std::mutex>&)>& is_open);
  // Names what has not ended yet, for the error of a timeout; empty means the operation as a whole.
  virtual std::string pending() const { return ""; }

  const std::chrono::milliseconds timeout_;
  const int64_t place_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  bool is_done_ = false;
  std::exception_ptr error_;
  std::function<void(std::exception_ptr)> next_;
};

}  // namespace tessera::comm::detail
