// A place in the order of a device's streams.
#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace tessera {

// Whether what is submitted to the device runs later, in streams; on the host it is over when the call
// returns.
bool has_streams(c10::Device device);
// Of this thread. Of a device that has streams.
c10::Stream current_stream(c10::Device device);
// One of those that LibTorch keeps for work beside the current stream's. Of a device that has streams.
c10::Stream pool_stream(c10::Device device);

// What has been submitted up to a moment. Where the device has no streams, nothing is ever open, and nothing
// is done. Not thread-safe, but for has_passed() and wait().
class DeviceEvent {
 public:
  explicit DeviceEvent(c10::Device device) : device_(device) {}

  // From now on it stands for all that the current stream holds.
  void record();
  // What is submitted to the current stream from now on starts after it; the host does not wait. Nothing
  // where nothing was recorded.
  void wait() const;
  bool has_passed() const;
  // The host waits.
  void synchronize() const;

 private:
  c10::Device device_;
  std::optional<c10::Event> event_;
};

}  // namespace tessera
