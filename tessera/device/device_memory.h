// The memory of a device, as LibTorch's allocator counts it, with what add_device_memory() was told.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace tessera {

struct DeviceMemory {
  int64_t live_bytes = 0, peak_bytes = 0;               // of tensors; the peak since reset_device_peak()
  int64_t reserved_bytes = 0, peak_reserved_bytes = 0;  // that the allocator holds for them, used or not
  int64_t num_retries = 0;  // times that the allocator had to give back what it kept
};

// Gives the memory of a device; waits for nothing on it. All zeros for the host, whose memory the ledger
// counts (memory_ledger.h).
DeviceMemory device_memory(c10::Device device);
// Makes peaks begin anew at what is live now. Does nothing for the host.
void reset_device_peak(c10::Device device);
// Counts `num_bytes` more, or fewer, of tensors whose memory is not from LibTorch's allocator. The peak is
// then the sum of both peaks, which need not have been at one time.
void add_device_memory(c10::Device device, int64_t num_bytes);

// Memory of the whole device, whoever uses it. device_room() asks the driver; it gives zeros for the host.
struct DeviceRoom {
  int64_t free_bytes = 0, total_bytes = 0;
};
DeviceRoom device_room(c10::Device device);

}  // namespace tessera
