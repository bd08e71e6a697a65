// The handle of a collective in flight.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace tessera::comm {

// Created by Communicator. Keep the tensors of the operation alive, and unread, until wait() returned.
// Thread-safe.
class Work {
 public:
  // A work that is done.
  Work();
  Work(std::string description, std::chrono::milliseconds timeout);

  // Blocks until the operation finished. Throws what the operation threw, or Error(Hang) after the
  // timeout: the process must then end, since the transport is still inside the operation.
  void wait();
  bool is_done() const;
  const std::string& description() const { return description_; }
  // "all_gather_single": the description's first word.
  std::string operation() const { return description_.substr(0, description_.find(' ')); }

  // For the executor: marks the work done, with an error or none.
  void finish(std::exception_ptr error);

 private:
  const std::string description_;
  const std::chrono::milliseconds timeout_{0};
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  bool is_done_ = false;
  std::exception_ptr error_;
};

}  // namespace tessera::comm
