#include "tessera/device/cpu_allocator.h"

#include <sys/resource.h>

#include <ATen/ATen.h>
#include <ATen/native/Resize.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "tessera/core/memory_ledger.h"
#include "tessera/device/memory_scope.h"

#include "tests/testing/skip.h"

namespace tessera {
namespace {

class CpuAllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kHasSanitizer) GTEST_SKIP() << testing::skip::kSanitizer;
    rlimit limit = {};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      GTEST_SKIP() << testing::skip::kPermission << ": all the address space";
    }
    ASSERT_TRUE(install_cpu_allocator()) << "the pool is off (TESSERA_CACHING_ALLOCATOR?)";
  }
};

TEST_F(CpuAllocatorTest, LargeTensorsComeFromThePool) {
  EXPECT_TRUE(install_cpu_allocator()) << "a second call changes nothing";
  const int64_t before = cpu_allocator_stats().live_bytes;
  at::Tensor large = at::full({1 << 20}, 3.0, at::kFloat);
  EXPECT_EQ(cpu_allocator_stats().live_bytes - before, 4 << 20);
  const at::Tensor small = at::zeros({16}, at::kFloat);
  EXPECT_EQ(cpu_allocator_stats().live_bytes - before, 4 << 20);
  EXPECT_EQ(large.sum().item<double>(), 3.0 * (1 << 20));
  large = at::Tensor();
  EXPECT_EQ(cpu_allocator_stats().live_bytes, before);
}

TEST_F(CpuAllocatorTest, StoragesAreFreedAndRefilled) {
  const int64_t before = cpu_allocator_stats().live_bytes;
  const at::Tensor tensor = at::arange(1 << 16, at::kFloat);
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  at::native::resize_bytes_cpu(storage, 0);
  EXPECT_EQ(cpu_allocator_stats().live_bytes, before);
  at::native::resize_bytes_cpu(storage, (1 << 16) * sizeof(float));
  tensor.fill_(2.0);
  EXPECT_EQ(tensor.sum().item<double>(), 2.0 * (1 << 16));
  // Growing keeps the contents.
  at::Tensor grown = at::arange(1 << 15, at::kFloat);
  grown.resize_({1 << 18});
  EXPECT_EQ(grown[32767].item<double>(), 32767.0);
}

TEST_F(CpuAllocatorTest, RawMemoryAndClones) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  ASSERT_NE(allocator->raw_deleter(), nullptr);
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{1} << 20}) {
    void* raw = allocator->raw_allocate(bytes);
    allocator->raw_deallocate(raw);
    const c10::DataPtr data = allocator->allocate(bytes);
    EXPECT_TRUE(allocator->is_simple_data_ptr(data));
    if (bytes == 0) continue;
    static_cast<char*>(data.get())[bytes - 1] = 9;
    const c10::DataPtr copy = allocator->clone(data.get(), bytes);
    EXPECT_EQ(static_cast<char*>(copy.get())[bytes - 1], 9);
  }
}

TEST_F(CpuAllocatorTest, TensorsOfAnySizeAreInTheLedger) {
  memory_ledger::start();
  at::Tensor small, large;
  {
    const MemoryScope scope(MemoryCategory::Gradients);
    small = at::zeros({3}, at::kFloat);
    large = at::zeros({1 << 20}, at::kFloat);
  }
  const int64_t expected = 3 * 4 + (1 << 22);
  EXPECT_EQ(memory_ledger::live().of(MemoryCategory::Gradients), expected);
  small = at::Tensor();
  EXPECT_EQ(memory_ledger::live().of(MemoryCategory::Gradients), 1 << 22);
  at::native::resize_bytes_cpu(large.storage().unsafeGetStorageImpl(), 0);
  EXPECT_EQ(memory_ledger::live().total(), 0);
  memory_ledger::stop();
  EXPECT_EQ(memory_ledger::peak().of(MemoryCategory::Gradients), expected);
}

TEST_F(CpuAllocatorTest, TooMuchIsLibTorchsError) {
  try {
    at::empty({int64_t{1} << 55}, at::kByte);
    FAIL() << "allocated 32 PiB";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("allocate memory"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
