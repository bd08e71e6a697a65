#include "tessera/core/device_memory.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "tessera/core/device.h"

namespace tessera {
namespace {

// Of all pools together.
const c10::CachingAllocator::Stat& whole(const c10::CachingAllocator::StatArray& stats) {
  return stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

c10::DeviceAllocator& allocator_of(c10::Device device) {
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) at::globalContext().lazyInitDevice(device.type());
  return *allocator;
}

}  // namespace

DeviceMemory device_memory(c10::Device device) {
  if (device.type() == kHost) return {};
  const auto stats = allocator_of(device).getDeviceStats(device.index());
  return {whole(stats.allocated_bytes).current, whole(stats.allocated_bytes).peak,
          whole(stats.reserved_bytes).current, whole(stats.reserved_bytes).peak, stats.num_alloc_retries};
}

void reset_device_peak(c10::Device device) {
  if (device.type() != kHost) allocator_of(device).resetPeakStats(device.index());
}

DeviceRoom device_room(c10::Device device) {
  if (device.type() == kHost) return {};
  const auto [free, total] = allocator_of(device).getMemoryInfo(device.index());
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

}  // namespace tessera
