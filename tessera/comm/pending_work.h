// Work that another thread ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "tessera/comm/work.h"

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

 private:
  // What has not ended yet, for the error of a timeout; empty = the operation as a whole.
  virtual std::string pending() const { return ""; }

  const std::chrono::milliseconds timeout_;
  const int64_t place_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  bool is_done_ = false;
  std::exception_ptr error_;
};

}  // namespace tessera::comm::detail
