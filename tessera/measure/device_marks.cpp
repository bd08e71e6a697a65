#include "tessera/measure/device_marks.h"

#include <cmath>

#include "tessera/device/device_event.h"

namespace tessera::measure {

DeviceMarks::DeviceMarks(c10::Device device)
    : device_(device), first_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  first_.record(current_stream(device_));
  first_.synchronize();
  first_ns_ = trace::now_ns();
}

int64_t DeviceMarks::mark() noexcept {
  try {
    c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(current_stream(device_));
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    return std::ssize(events_) - 1;
  } catch (const std::exception&) {
    return -1;  // a timeline without a span is better than a step that ends for it
  }
}

std::vector<int64_t> DeviceMarks::times_ns() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t> times;
  for (c10::Event& event : events_) {
    event.synchronize();
    times.push_back(first_ns_ + std::llround(1e6 * first_.elapsedTime(event)));
  }
  return times;
}

}  // namespace tessera::measure
