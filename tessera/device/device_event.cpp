#include "tessera/device/device_event.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "tessera/device/device.h"

namespace tessera {

bool has_streams(c10::Device device) {
  return device.type() != kHost && device.type() != c10::DeviceType::Meta;
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream pool_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void DeviceEvent::record() {
  if (!has_streams(device_)) return;
  if (!event_.has_value()) event_.emplace(device_.type());
  event_->record(current_stream(device_));
}

void DeviceEvent::wait() const {
  if (event_.has_value()) event_->block(current_stream(device_));
}

bool DeviceEvent::has_passed() const { return !event_.has_value() || event_->query(); }

void DeviceEvent::synchronize() const {
  if (event_.has_value()) event_->synchronize();
}

}  // namespace tessera
