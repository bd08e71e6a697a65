#include "tessera/device/device.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/cuda_library.h"
#include "tessera/core/error.h"
#include "tessera/device/cuda_devices.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"

namespace tessera {
namespace {

// This must be the first test: LibTorch is asked for devices once in a process.
TEST(DeviceTest, AutoIsWhatThereIs) {
  EXPECT_EQ(resolve_device({DeviceKind::Cpu}, 3), at::Device(kHost));
  EXPECT_EQ(cuda::missing(), cuda::Missing::Request) << "the CPU asks for nothing";
  EXPECT_FALSE(cuda::is_open());
  EXPECT_TRUE(cuda::own_kernels_library().is_missing());
  const at::Device found = resolve_device({DeviceKind::Auto});
  const int64_t count = find_cuda_devices().count;
  EXPECT_EQ(found.is_cuda(), count > 0);
  EXPECT_EQ(cuda::is_open(), cuda::why_not().empty());
  if (count > 0) {
    EXPECT_EQ(resolve_device({DeviceKind::Cuda}, count).index(), 0) << "ranks take them in turn";
    EXPECT_EQ(resolve_device({DeviceKind::Cuda, 0}, count + 1).index(), 0)
        << "a device by its number is that one";
    return;
  }
  for (const DeviceChoice& choice : {DeviceChoice{DeviceKind::Cuda}, DeviceChoice{DeviceKind::Cuda, 1}}) {
    try {
      resolve_device(choice);
      ADD_FAILURE() << "a device that is not there";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-CONFIG-DEVICE");
      EXPECT_EQ(exit_code(error.kind()), 2);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("got " + find_cuda_devices().why_none + ", need "));
    }
  }
  EXPECT_FALSE(cuda::is_open());
  EXPECT_FALSE(cuda::why_not().empty());
  EXPECT_FALSE(cuda::own_kernels_library().is_usable());
}

TEST(DeviceTest, AChoiceIsReadAsItIsWritten) {
  for (const char* text : {"auto", "cpu", "cuda", "cuda:0", "cuda:127"})
    EXPECT_EQ(DeviceChoice::parse(text).value().text(), text);
  EXPECT_EQ(DeviceChoice::parse("cuda:1")->number, 1);
  EXPECT_EQ(DeviceChoice::parse("cuda")->number, -1);
  for (const char* text :
       {"", "gpu", "cuda:", "cuda: 1", "cuda:+1", "cuda:-1", "cuda:1 ", "cuda:4294967296", "cpu:0"})
    EXPECT_FALSE(DeviceChoice::parse(text).has_value()) << text;
}

TEST(DeviceTest, CopiesKeepTypeAndShape) {
  const at::Tensor x = at::arange(6, on_host(at::kLong)).view({2, 3});
  EXPECT_TRUE(copy_to(x, kHost).is_same(x));
  const at::Tensor copy = copy_to(x, at::kMeta);
  EXPECT_EQ(copy.sizes(), x.sizes());
  EXPECT_EQ(copy.scalar_type(), x.scalar_type());
  EXPECT_TRUE(copy_to(copy, at::kMeta).is_same(copy)) << "there already";
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
