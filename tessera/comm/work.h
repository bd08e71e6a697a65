// The handle of an operation in flight.
#pragma once

#include <memory>
#include <string>

namespace tessera::comm {

// An operation in flight, made by the implementation of a communicator. Keep the operation's tensors alive,
// and unread, until wait() has returned. Thread-safe.
class Work {
 public:
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Returns when the caller may use the operation's results. On a device that is in what it submits to the
  // current stream from now on, so the host does not wait. Throws what the operation threw, or Error(Hang)
  // after the timeout: the process must then end, since the operation goes on.
  virtual void wait() = 0;
  // Waits like wait(), and the host waits too: for callers that use the results outside of the stream.
  virtual void wait_host() { wait(); }
  virtual bool is_done() const = 0;

  const std::string& description() const { return description_; }
  // The description's first word, such as "all_gather_single".
  std::string operation() const { return description_.substr(0, description_.find(' ')); }

 protected:
  explicit Work(std::string description) : description_(std::move(description)) {}

 private:
  const std::string description_;
};

}  // namespace tessera::comm
