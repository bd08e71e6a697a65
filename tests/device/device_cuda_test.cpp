// Tests of what the program does with a GPU itself: copies, memory, events.
#include <ATen/ATen.h>

#include "tessera/core/cuda_driver.h"
#include "tessera/device/cuda_devices.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/device_memory.h"
#include "tessera/device/device_time.h"
#include "tessera/measure/device_marks.h"
#include "tessera/measure/device_rates.h"

#include "tests/testing/cuda_device.h"

namespace tessera {
namespace {

using testing::cuda_device;

TEST(DeviceCudaTest, LibTorchSeesWhatTheDriverOffers) {
  TESSERA_NEEDS_CUDA();
  EXPECT_EQ(find_cuda_devices().count, std::ssize(cuda::driver().gpus));
  EXPECT_TRUE(at::globalContext().hasCuDNN()) << "asked before its CUDA part was open, LibTorch would say no";
  EXPECT_GE(cuda::driver().cuda_version, 13000);
  // A context may get a little less memory than the device has.
  const auto offered = static_cast<double>(device_room(cuda_device()).total_bytes);
  EXPECT_NEAR(offered / static_cast<double>(cuda::driver().gpus.front().memory_bytes), 1.0, 0.05);
}

TEST(DeviceCudaTest, CopiesArriveBeforeWhatComesNext) {
  TESSERA_NEEDS_CUDA();
  for (int round = 0; round < 50; ++round) {
    at::Tensor x = at::arange(100'003, on_host(at::kLong)) + round;
    const at::Tensor copy = copy_to(x, cuda_device());
    // The copy goes through pinned memory of LibTorch, so a later change of x does not reach it.
    x.zero_();
    EXPECT_EQ(copy.sum().item<int64_t>(), int64_t{100'003} * 100'002 / 2 + int64_t{100'003} * round);
  }
}

TEST(DeviceCudaTest, MemoryIsCounted) {
  TESSERA_NEEDS_CUDA();
  const int64_t before = device_memory(cuda_device()).live_bytes;
  reset_device_peak(cuda_device());
  { const at::Tensor x = at::empty({1 << 24}, at::TensorOptions(cuda_device()).dtype(at::kFloat)); }
  const DeviceMemory after = device_memory(cuda_device());
  EXPECT_EQ(after.live_bytes, before);
  EXPECT_GE(after.peak_bytes, before + (int64_t{4} << 24));
  EXPECT_GE(after.peak_reserved_bytes, after.peak_bytes);
  reset_device_peak(cuda_device());
  EXPECT_EQ(device_memory(cuda_device()).peak_bytes, before);
}

TEST(DeviceCudaTest, MarksFollowTheStream) {
  TESSERA_NEEDS_CUDA();
  const at::Tensor a = at::randn({4096, 4096}, at::TensorOptions(cuda_device()).dtype(at::kFloat));
  const double one_s = best_seconds(cuda_device(), 3, [&] { (void)at::mm(a, a); });
  EXPECT_GT(one_s, 1e-5) << "137 GFLOP take longer on any GPU";
  measure::DeviceMarks marks(cuda_device());
  marks.mark();
  for (int i = 0; i < 4; ++i) (void)at::mm(a, a);
  marks.mark();
  const auto times = marks.times_ns();
  ASSERT_EQ(times.size(), 2u);
  const double four_s = 1e-9 * static_cast<double>(times[1] - times[0]);
  EXPECT_GT(four_s, 2.0 * one_s);
}

TEST(DeviceCudaTest, EveryRateIsMeasured) {
  TESSERA_NEEDS_CUDA();
  const auto rates =
      measure::measure_device_rates(cuda_device(), {.size = 2048, .copy_bytes = 1 << 26, .rounds = 3});
  EXPECT_EQ(rates.size(), 6u);
  for (const measure::DeviceRate& rate : rates)
    EXPECT_GT(rate.value, 0.0) << rate.name << ": " << rate.problem;
}

}  // namespace
}  // namespace tessera
