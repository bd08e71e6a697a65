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
#include "tessera/device/device_event.h"

namespace tessera::comm::detail {

// [Note: memory of work on a device]
// LibTorch's allocator hands freed memory to the next request on the same stream at once, although an
// operation on another stream may still use it. So an operation's tensors are held until the stream that
// submitted it waits for its end: all that this stream runs afterwards, new owners of the memory among it,
// then comes after the operation. If nobody waits, the tensors are held until the operation is over.
class DeviceWork : public PendingWork {
 public:
  // `held` are the tensors that the operation reads and writes. `agreement` is what the ranks compare on the
  // host meanwhile: without it the operation is not over, and its error is the operation's; it may be null.
  // Make the object while the submitting stream is the current one.
  DeviceWork(const Call& call, at::Device device, std::vector<at::Tensor> held,
             std::shared_ptr<const PendingWork> agreement);

  void wait() override;
  void wait_host() override { wait_for_end(); }
  bool is_done() const override;

  // Marks the operation's end on the current stream. Call it once, when the operation has been put there.
  // `after` is the error of the operation that it comes after, or of its own submission; wait() throws it.
  void record(std::exception_ptr after = nullptr);
  // The error with which the agreement has ended, if it has.
  std::optional<Error> disagreement() const;
  // Gives Error(Hang) if the operation is late and the delay is not excused.
  std::optional<Error> look() const;
  // Tells whether the operation and its agreement are over. Any thread may call this.
  bool has_passed() const;
  // Ends the work, with an error or none, and lets go of its tensors. The watchdog calls this when the
  // operation is over, or whoever aborts the group.
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
