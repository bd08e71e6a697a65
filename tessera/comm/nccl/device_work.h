// Work that a device does in the order of its streams.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/pending_work.h"
#include "tessera/comm/tensor_backend.h"
#include "tessera/core/device_event.h"

namespace tessera::comm::detail {

// [Note: memory of work on a device]
// The allocator gives freed memory to the next who asks on the same stream, at once. So the operation's
// tensors are held until the stream that submitted it waits for its end: what comes after in this stream, new
// owners of the memory among them, then comes after the operation. Where nobody waits, they are held until it
// is over.
class DeviceWork : public PendingWork {
 public:
  // `held`: what the operation reads and writes. `agreement`: of the ranks on the host, without which it is
  // not over, and whose error is its own; may be null. To be made where it is submitted.
  DeviceWork(const Call& call, at::Device device, std::vector<at::Tensor> held,
             std::shared_ptr<const PendingWork> agreement);

  void wait() override;
  void wait_host() override { wait_for_end(); }
  bool is_done() const override;

  // The operation is on the current stream, with all before it. `after`: the error of what it comes after, or
  // its own. Once.
  void record(std::exception_ptr after = nullptr);
  // The error of the agreement, if any so far.
  std::optional<Error> disagreement() const;
  // The Error(Hang) where it is late.
  std::optional<Error> look() const;
  // For any thread.
  bool has_passed() const;
  // On the watchdog's thread: it is over.
  void end(std::exception_ptr error);

 private:
  void let_go();

  const c10::Stream submitted_on_;
  const at::Device device_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  DeviceEvent done_;
  std::exception_ptr after_;
  std::atomic<bool> is_submitted_ = false;
  std::mutex held_mutex_;
  std::vector<at::Tensor> held_;
  const std::shared_ptr<const PendingWork> agreement_;
};

}  // namespace tessera::comm::detail
