#include "tessera/core/device.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/host_memory.h"

namespace tessera {
namespace {

TEST(DeviceTest, AutoIsWhatThereIs) {
  EXPECT_EQ(resolve_device(DeviceChoice::Cpu, 3), at::Device(kHost));
  if (!at::hasCUDA()) {
    EXPECT_EQ(resolve_device(DeviceChoice::Auto), at::Device(kHost));
    try {
      resolve_device(DeviceChoice::Cuda);
      FAIL() << "a device that is not there";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-CONFIG-DEVICE");
      EXPECT_EQ(exit_code(error.kind()), 2);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("got a LibTorch without CUDA, need cpu or auto"));
    }
  } else {
    EXPECT_TRUE(resolve_device(DeviceChoice::Auto).is_cuda());
    EXPECT_EQ(resolve_device(DeviceChoice::Cuda, at::getNumGPUs()).index(), 0) << "ranks take them in turn";
  }
}

TEST(DeviceTest, HostMemoryIsReadWhereItIs) {
  const at::Tensor x = at::arange(6, on_host(at::kLong));
  EXPECT_TRUE(is_on_host(x));
  EXPECT_THAT(host_span<const int64_t>(x), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(host_span<const char>(x).size(), 48U);
  host_span<int64_t>(x)[2] = 7;
  EXPECT_EQ(x[2].item<int64_t>(), 7);
  EXPECT_THAT(host_span<const int64_t>(x.narrow(0, 2, 2)), ::testing::ElementsAre(7, 3));
  EXPECT_THROW(host_span<const float>(x), Error) << "of another type";
  EXPECT_THROW(host_span<const int64_t>(x.view({2, 3}).t()), Error) << "not dense";
  EXPECT_THROW(host_span<const int64_t>(x.to(at::kMeta)), Error) << "elsewhere";
  EXPECT_FALSE(is_on_host(x.to(at::kMeta)));
}

}  // namespace
}  // namespace tessera
