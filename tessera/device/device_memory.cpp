#include "tessera/device/device_memory.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "tessera/device/device.h"

namespace tessera {
namespace {

// The statistic of all pools together.
const c10::CachingAllocator::Stat& whole(const c10::CachingAllocator::StatArray& stats) {
  return stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

// Tensors whose memory is not from LibTorch's allocator.
struct Others {
  int64_t live_bytes = 0, peak_bytes = 0;
};
std::mutex g_mutex;
std::map<c10::DeviceIndex, Others> g_others;

c10::DeviceAllocator& allocator_of(c10::Device device) {
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) at::globalContext().lazyInitDevice(device.type());
  return *allocator;
}

}  // namespace

DeviceMemory device_memory(c10::Device device) {
  if (device.type() == kHost) return {};
  const auto stats = allocator_of(device).getDeviceStats(device.index());
  const std::lock_guard<std::mutex> lock(g_mutex);
  const Others& others = g_others[device.index()];
  return {whole(stats.allocated_bytes).current + others.live_bytes,
          whole(stats.allocated_bytes).peak + others.peak_bytes,
          whole(stats.reserved_bytes).current + others.live_bytes,
          whole(stats.reserved_bytes).peak + others.peak_bytes, stats.num_alloc_retries};
}

void add_device_memory(c10::Device device, int64_t num_bytes) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  Others& others = g_others[device.index()];
  others.live_bytes += num_bytes;
  others.peak_bytes = std::max(others.peak_bytes, others.live_bytes);
}

void reset_device_peak(c10::Device device) {
  if (device.type() == kHost) return;
  allocator_of(device).resetPeakStats(device.index());
  const std::lock_guard<std::mutex> lock(g_mutex);
  Others& others = g_others[device.index()];
  others.peak_bytes = others.live_bytes;
}

DeviceRoom device_room(c10::Device device) {
  if (device.type() == kHost) return {};
  const auto [free, total] = allocator_of(device).getMemoryInfo(device.index());
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

}  // namespace tessera
