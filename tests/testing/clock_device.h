// A device that computes nothing, registered as LibTorch's PrivateUse1. Its clock advances when a test says
// that work was run, its events keep the clock's time, and its allocator reports the statistics that a test
// sets.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <utility>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace tessera::testing {

inline const c10::Device kClockDevice(c10::DeviceType::PrivateUse1, 0);

struct ClockDeviceState {
  std::atomic<double> clock_ms{0.0};
  std::atomic<int64_t> num_events{0};        // events that exist now
  std::atomic<int64_t> num_synchronised{0};  // how often the host has waited for the device
};
inline ClockDeviceState g_clock_device;

// Advances the clock by the time that the device takes for its next work.
inline void run_on_clock_device(double milliseconds) {
  g_clock_device.clock_ms = g_clock_device.clock_ms + milliseconds;
}

class ClockGuardImpl final : public c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
 public:
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kClockDevice);
  }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(flag == c10::EventFlag::BACKEND_DEFAULT, "an event without times");
    if (*event == nullptr) {
      *event = new double;
      ++g_clock_device.num_events;
    }
    *static_cast<double*>(*event) = g_clock_device.clock_ms;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event == nullptr) return;
    delete static_cast<double*>(event);
    --g_clock_device.num_events;
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { ++g_clock_device.num_synchronised; }
  void synchronizeDevice(const c10::DeviceIndex) const override { ++g_clock_device.num_synchronised; }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    return *static_cast<double*>(end) - *static_cast<double*>(begin);
  }
};

class ClockDeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::CachingDeviceAllocator::DeviceStats stats;

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return stats; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    for (auto* each : {&stats.allocated_bytes, &stats.reserved_bytes})
      for (auto& stat : *each) stat.reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override { return {3000, 4000}; }
  c10::DataPtr allocate(size_t) override { TORCH_CHECK(false, "a clock device has no memory"); }
  void copy_data(void*, const void*, size_t) const override {}
};

// Registers the device guard and the allocator with LibTorch, until the end of the program.
inline ClockDeviceAllocator& install_clock_device() {
  static auto* const guard = new ClockGuardImpl;
  static auto* const allocator = new ClockDeviceAllocator;
  static const bool is_installed = [] {
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::PrivateUse1)] = guard;
    c10::SetAllocator(c10::DeviceType::PrivateUse1, allocator);
    return true;
  }();
  static_cast<void>(is_installed);
  return *allocator;
}

}  // namespace tessera::testing
