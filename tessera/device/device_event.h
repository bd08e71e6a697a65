// A place in the order of a device's streams.
#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace tessera {

// Tells whether work that is submitted to the device runs later, in streams. On the host it is over when its
// call returns.
bool has_streams(c10::Device device);
// The current stream of this thread on a device that has streams.
c10::Stream current_stream(c10::Device device);
// One of the streams that LibTorch keeps for work beside the current stream's, on a device that has streams.
c10::Stream pool_stream(c10::Device device);

// All work that has been submitted up to a moment. On a device without streams the event always has passed,
// and its functions do nothing. Not thread-safe, except for has_passed() and wait().
class DeviceEvent {
 public:
  explicit DeviceEvent(c10::Device device) : device_(device) {}

  // Makes the event stand for all that the current stream holds now.
  void record();
  // Makes what is submitted to the current stream from now on start after the event; the host does not wait.
  // Does nothing if nothing was recorded.
  void wait() const;
  // Tells whether the recorded work is over; true if nothing was recorded.
  bool has_passed() const;
  // Makes the host wait for that work.
  void synchronize() const;

 private:
  c10::Device device_;
  std::optional<c10::Event> event_;
};

}  // namespace tessera
