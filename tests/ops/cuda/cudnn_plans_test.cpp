// Checks that cuDNN itself accepts the graphs of attention and compiles its fastest kernels of them. No such
// device is there: cuDNN gets a description of one, and hands the compiled kernels to our fake driver.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/shared_library.h"
#include "tessera/ops/cuda/attention_graph.h"

#include "tests/ops/cuda/described_device.h"
#include "tests/testing/extent.h"
#include "tests/testing/skip.h"

namespace tessera::ops::cuda {
namespace {

using testing::DescribedDevice;

class CudnnPlans : public ::testing::TestWithParam<DescribedDevice> {
 protected:
  void SetUp() override {
#ifndef TESSERA_CUDNN
    GTEST_SKIP() << testing::skip::kCudnn;
#else
    if (testing::kHasSanitizer) GTEST_SKIP() << testing::skip::kSanitizer;
    // Opened before anything asks for libcuda.so.1, the fake driver is the one that is found.
    SharedLibrary driver({TESSERA_FAKE_DRIVER}, SharedLibrary::Symbols::OfAll);
    driver.find(last_kernel_, "fake_driver_kernel");
    ASSERT_TRUE(driver.is_usable()) << driver.why_not();
    std::string why_not;
    const auto library = CudnnLibrary::open(why_not, TESSERA_CUDNN);
    if (!library) GTEST_SKIP() << testing::skip::kCudnn << ": " << why_not;
    library_ = *library;
    const std::string text = testing::description(GetParam());
    ASSERT_EQ(library_.desc_create(dnn::kDeviceProperties, &device_), dnn::kSuccess);
    ASSERT_EQ(library_.desc_set(device_, dnn::kDeviceJson, dnn::kCharValue, std::ssize(text), text.data()),
              dnn::kSuccess);
    ASSERT_EQ(library_.desc_finalize(device_), dnn::kSuccess);
#endif
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    EXPECT_EQ(library_.desc_destroy(device_), dnn::kSuccess);
  }

  void expect_kernels(const AttentionShape& shape) {
    for (const bool is_backward : {false, true}) {
      SCOPED_TRACE(is_backward ? "backward" : "forward");
      CudnnGraph graph(library_);
      is_backward ? add_attention_backward(graph, shape) : add_attention_forward(graph, shape);
      graph.build({.device = device_});
      EXPECT_THAT(last_kernel_(), ::testing::HasSubstr(std::string(GetParam().attention) +
                                                       (is_backward ? "bprop" : "fprop")));
      // Workspace that grows with the tokens is allocated by us (backward_scratch) and not part of this.
      EXPECT_LE(graph.workspace_bytes(), 1 << 20);
    }
  }

  CudnnLibrary library_;
  dnn::Desc device_ = nullptr;
  const char* (*last_kernel_)() = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Of, CudnnPlans, ::testing::Values(testing::kH100, testing::kB200),
                         [](const auto& info) { return std::string(info.param.name); });

constexpr AttentionShape kDocuments = {dnn::kBF16, 4, 8192, 8192, 32, 8, 128, -1, 0, false, 0.088f};

TEST_P(CudnnPlans, ForModelsOfAllKinds) {
  struct Model {
    int64_t head_dim, kv_heads;
    dnn::DataType type;
  };
  for (const Model& model : {Model{64, 8, dnn::kF16}, {96, 32, dnn::kBF16}, {128, 8, dnn::kBF16}}) {
    SCOPED_TRACE(::testing::Message() << model.head_dim << ' ' << model.kv_heads);
    AttentionShape shape = kDocuments;
    shape.head_dim = model.head_dim, shape.kv_heads = model.kv_heads, shape.type = model.type;
    expect_kernels(shape);
  }
}

TEST_P(CudnnPlans, ForAllBands) {
  struct Band {
    int64_t left, right;
    bool is_from_end;
  };
  const std::vector<Band> bands = {{-1, -1, false}, {511, 0, false}, {511, 511, false},
                                   {-1, 0, true},   {511, 0, true},  {300, 40, true}};
  testing::Random random;
  for (const Band& band : testing::some_of(bands, 2, random)) {
    SCOPED_TRACE(::testing::Message() << band.left << ' ' << band.right << ' ' << band.is_from_end);
    AttentionShape shape = kDocuments;
    shape.left = band.left, shape.right = band.right, shape.is_from_end = band.is_from_end;
    if (band.is_from_end) shape.longest_key = 16384;
    expect_kernels(shape);
  }
}

TEST_P(CudnnPlans, ForTheLongestAndTheMostDocuments) {
  AttentionShape shape = kDocuments;
  shape.documents = 128, shape.longest_query = shape.longest_key = int64_t{1} << 20;
  expect_kernels(shape);
}

}  // namespace
}  // namespace tessera::ops::cuda
