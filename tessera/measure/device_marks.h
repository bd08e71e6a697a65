// Puts marks into the streams of a device, and tells when the device came to them.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include <c10/core/Event.h>

#include "tessera/core/stream_trace.h"

namespace tessera::measure {

// Makes marks of LibTorch's events, on the current streams of one device. A mark costs the host a few
// microseconds and the device nothing.
class DeviceMarks : public trace::StreamMarks {
 public:
  // Waits for everything that runs on the device, so that its clock can be set against the host's.
  explicit DeviceMarks(c10::Device device);

  int64_t mark() noexcept override;

  // Returns when the device came to each mark, by the number that mark() returned: nanoseconds on the host's
  // steady clock (trace::now_ns()). Waits for the last mark.
  std::vector<int64_t> times_ns();

 private:
  const c10::Device device_;
  c10::Event first_;  // at first_ns_ on the host's clock
  int64_t first_ns_ = 0;
  std::mutex mutex_;
  std::deque<c10::Event> events_;
};

}  // namespace tessera::measure
