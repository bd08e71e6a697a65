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
  // `place`: in the flight recorder.
  PendingWork(std::string description, std::chrono::milliseconds timeout, int64_t place = -1)
      : Work(std::move(description)), timeout_(timeout), place_(place) {}

  void wait() override;
  bool is_done() const override;
  // Once: marks the work done, with an error or none.
  void finish(std::exception_ptr error = nullptr);
  // Runs `next` with the work's error, or none: on the thread that ends it, or now where it has ended. One at
  // most.
  void then(std::function<void(std::exception_ptr)> next);
  // Throws the error that the work has ended with, if it has. Does not wait.
  void check() const;

 protected:
  std::chrono::milliseconds timeout() const { return timeout_; }
  // As wait(), for as long as it takes: where another thread ends what is late.
  void wait_for_end();
  // The Error(Hang) of work whose timeout has passed, after it was noted; none where the delay is excused.
  std::optional<Error> hang() const;

 private:
  void wait_while(const std::function<bool(std::unique_lock<std::mutex>&)>& is_open);
  // What has not ended yet, for the error of a timeout; empty = the operation as a whole.
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
