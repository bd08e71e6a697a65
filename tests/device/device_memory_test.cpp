#include "tessera/device/device_memory.h"

#include <thread>

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <gtest/gtest.h>

#include "tessera/device/cpu_allocator.h"
#include "tessera/device/device.h"
#include "tessera/device/device_ledger.h"
#include "tessera/device/device_time.h"
#include "tessera/device/memory_scope.h"

#include "tests/testing/clock_device.h"

namespace tessera {
namespace {

using testing::kClockDevice;

TEST(DeviceMemoryTest, TellsWhatTheAllocatorCounts) {
  auto& stats = testing::install_clock_device().stats;
  stats = {};
  stats.num_alloc_retries = 2;
  stats.allocated_bytes[0].increase(700);
  stats.allocated_bytes[0].decrease(300);
  stats.reserved_bytes[0].increase(900);
  stats.allocated_bytes[1].increase(5);  // bytes of one pool, which the total already counts
  const DeviceMemory memory = device_memory(kClockDevice);
  EXPECT_EQ(memory.live_bytes, 400);
  EXPECT_EQ(memory.peak_bytes, 700);
  EXPECT_EQ(memory.reserved_bytes, 900);
  EXPECT_EQ(memory.peak_reserved_bytes, 900);
  EXPECT_EQ(memory.num_retries, 2);

  reset_device_peak(kClockDevice);
  EXPECT_EQ(device_memory(kClockDevice).peak_bytes, 400);
  stats.allocated_bytes[0].increase(50);
  EXPECT_EQ(device_memory(kClockDevice).peak_bytes, 450);
  EXPECT_EQ(device_room(kClockDevice).free_bytes, 3000);
  EXPECT_EQ(device_room(kClockDevice).total_bytes, 4000);
}

TEST(DeviceMemoryTest, TheHostIsNotCountedHere) {
  EXPECT_EQ(device_memory(kHost).peak_bytes, 0);
  EXPECT_EQ(device_room(kHost).total_bytes, 0);
  reset_device_peak(kHost);
}

TEST(DeviceLedgerTest, CountsWhatTheDevicesAllocatorReports) {
  install_cpu_allocator();
  char blocks[3] = {};
  const auto report = [&](int block, int64_t bytes, c10::Device device = kClockDevice) {
    c10::reportMemoryUsageToProfiler(&blocks[block], bytes, 0, 0, device);
  };
  const auto live = [](MemoryCategory category) { return memory_ledger::live().of(category); };
  {
    const DeviceLedger ledger(kClockDevice);
    {
      const MemoryScope scope(MemoryCategory::Parameters);
      report(0, 4000);
    }
    {
      const MemoryScope scope(MemoryCategory::Activations);
      report(1, 3000);
      report(2, 100, kHost);  // memory of another device
    }
    EXPECT_EQ(live(MemoryCategory::Parameters), 4000);
    EXPECT_EQ(live(MemoryCategory::Activations), 3000);
    report(1, -3000);
    EXPECT_EQ(live(MemoryCategory::Activations), 0);
    EXPECT_EQ(memory_ledger::peak().total(), 7000);
    // The block was freed while nobody looked, and its address is handed out again.
    report(0, 500);
    EXPECT_EQ(live(MemoryCategory::Parameters), 0);
    EXPECT_EQ(live(MemoryCategory::Other), 500);
    // A backward on another thread of LibTorch has the category of this one.
    const at::ThreadLocalState carried;
    std::thread([&] {
      const at::ThreadLocalStateGuard guard(carried);
      report(1, 70);
    }).join();
    EXPECT_EQ(live(MemoryCategory::Other), 570);
    const at::Tensor on_the_host = at::zeros({1 << 16}, on_host(at::kFloat));
    EXPECT_EQ(memory_ledger::live().total(), 570) << "the host's is not counted";
  }
  report(2, 100);
  EXPECT_EQ(memory_ledger::live().total(), 570) << "nothing is counted any more";
}

TEST(DeviceTimeTest, IsTheDevicesOwn) {
  testing::install_clock_device();
  const int64_t events = testing::g_clock_device.num_events;
  double next_ms = 8.0;
  int runs = 0;
  const double best = best_seconds(kClockDevice, 3, [&] {
    ++runs;
    testing::run_on_clock_device(next_ms);
    next_ms /= 2.0;
  });
  EXPECT_EQ(runs, 4) << "one to warm up";
  EXPECT_DOUBLE_EQ(best, 1e-3) << "8 ms were not counted, then came 4, 2 and 1";
  EXPECT_EQ(testing::g_clock_device.num_events, events) << "no event is left behind";
}

TEST(DeviceTimeTest, OnTheHostIsTheClocks) {
  int runs = 0;
  EXPECT_GE(best_seconds(kHost, 2, [&] { ++runs; }), 0.0);
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace tessera
