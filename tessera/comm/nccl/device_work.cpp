#include "tessera/comm/nccl/device_work.h"

namespace tessera::comm::detail {

DeviceWork::DeviceWork(const Call& call, at::Device device, std::vector<at::Tensor> held,
                       std::shared_ptr<const PendingWork> agreement)
    : PendingWork(call.description, call.timeout, call.place),
      submitted_on_(current_stream(device)),
      device_(device),
      done_(device),
      held_(std::move(held)),
      agreement_(std::move(agreement)) {}

void DeviceWork::wait() {
  // This throws the error with which the watchdog has ended the operation, if it has.
  check();
  done_.wait();
  // Another stream that waits does not order the submitting one: see [Note: memory of work on a device].
  if (current_stream(device_) == submitted_on_) let_go();
  if (after_ != nullptr) std::rethrow_exception(after_);
}

bool DeviceWork::is_done() const { return PendingWork::is_done() || has_passed(); }

bool DeviceWork::has_passed() const {
  return is_submitted_ && (agreement_ == nullptr || agreement_->is_done()) && done_.has_passed();
}

void DeviceWork::record(std::exception_ptr after) {
  after_ = std::move(after);
  done_.record();
  // Last, since the watchdog looks at done_ from here on.
  is_submitted_ = true;
}

std::optional<Error> DeviceWork::disagreement() const {
  if (agreement_ == nullptr) return std::nullopt;
  try {
    agreement_->check();
    return std::nullopt;
  } catch (const Error& error) {
    return Error(error).within(description());
  } catch (const std::exception& error) {
    return Error(ErrorKind::Internal, "EXCHANGE", description() + ": " + error.what());
  }
}

std::optional<Error> DeviceWork::look() const {
  if (std::chrono::steady_clock::now() - begin_ < timeout()) return std::nullopt;
  return hang();
}

void DeviceWork::end(std::exception_ptr error) {
  let_go();
  finish(error != nullptr ? std::move(error) : after_);
}

void DeviceWork::let_go() {
  // The tensors are destroyed outside of the lock, since freeing their memory may take others.
  std::vector<at::Tensor> held;
  {
    const std::lock_guard<std::mutex> lock(held_mutex_);
    held = std::move(held_);
    held_.clear();
  }
}

}  // namespace tessera::comm::detail
