// Marks in the streams of a device, and when it came to them.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include <c10/core/Event.h>

#include "tessera/core/stream_trace.h"

namespace tessera::train {

// Events of LibTorch on the current streams of one device; a mark costs the host a few microseconds and the
// device nothing.
class DeviceMarks : public trace::StreamMarks {
 public:
  // Waits for all that runs on the device, so that its clock can be set against the host's.
  explicit DeviceMarks(c10::Device device);

  int64_t mark() noexcept override;

  // When the device came to each mark, by the number that mark() gave: nanoseconds on the host's steady clock
  // (trace::now_ns()). Waits for the last of them.
  std::vector<int64_t> times_ns();

 private:
  const c10::Device device_;
  c10::Event first_;
  int64_t first_ns_ = 0;
  std::mutex mutex_;
  std::deque<c10::Event> events_;
};

}  // namespace tessera::train
