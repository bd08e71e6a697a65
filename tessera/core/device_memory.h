// The memory of a device, as LibTorch's allocator for it counts, with what others were told of.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace tessera {

struct DeviceMemory {
  int64_t live_bytes = 0, peak_bytes = 0;               // of tensors; the peak since reset_device_peak()
  int64_t reserved_bytes = 0, peak_reserved_bytes = 0;  // that the allocator holds for them, used or not
  int64_t num_retries = 0;                              // times that it had to give back what it kept
};

// Waits for nothing on the device. All zeros for the host, whose memory the ledger counts (memory_ledger.h).
DeviceMemory device_memory(c10::Device device);
// Peaks begin anew at what is live now. Does nothing for the host.
void reset_device_peak(c10::Device device);
// Memory of tensors from elsewhere than LibTorch's allocator: bytes more, or fewer. The peak is then the most
// of the one and of the other, which need not have been at one time.
void add_device_memory(c10::Device device, int64_t num_bytes);

// Of the whole device, whoever uses it. Asks the driver.
struct DeviceRoom {
  int64_t free_bytes = 0, total_bytes = 0;
};
DeviceRoom device_room(c10::Device device);

}  // namespace tessera
