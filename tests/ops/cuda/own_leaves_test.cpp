// The ops on Tessera's CUDA kernels, which run on the CPU here (emulation.h), against the host's.
#include "tessera/ops/cuda/own_leaves.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/ops/leaf_tests.h"

extern "C" const tessera::ops::cuda::CudaKernels* tessera_cuda_kernels();

namespace tessera::ops {
namespace {

using leaf_tests::LeavesOf, leaf_tests::TableCase;

const Leaves& emulated_leaves() {
  static const Leaves kLeaves = [] {
    cuda::use_kernels(*tessera_cuda_kernels());
    return cuda::own_leaves();
  }();
  return kLeaves;
}

INSTANTIATE_TEST_SUITE_P(Emulated, LeavesOf,
                         ::testing::Values(TableCase{"Double", emulated_leaves, at::kDouble},
                                           TableCase{"Float", emulated_leaves, at::kFloat},
                                           TableCase{"BFloat16", emulated_leaves, at::kBFloat16}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(OwnLeaves, ReplaceWhatLibTorchHas) {
  const Leaves &own = emulated_leaves(), &others = cuda_leaves();
  EXPECT_NE(own.rms_norm, others.rms_norm);
  EXPECT_NE(own.cross_entropy, others.cross_entropy);
  EXPECT_NE(own.adamw, others.adamw);
  EXPECT_EQ(own.multiply, others.multiply);
  EXPECT_EQ(own.attend_spans, others.attend_spans);
}

// A block of Q8_0: a scale in float16 and 32 bytes.
TEST(OwnLeaves, ExpandBlocksOfGguf) {
  constexpr int64_t kBlocks = 3;
  const at::Tensor scales = at::tensor({0.5F, -2.0F, 0.25F}).to(at::kHalf),
                   codes = at::arange(-48, 48, at::kInt).to(at::kChar).view({kBlocks, 32});
  const at::Tensor blocks =
      at::cat({scales.view(at::kByte).view({kBlocks, 2}), codes.view(at::kByte)}, 1).contiguous();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor to = at::empty({kBlocks, 32}, type);
    emulated_leaves().expand_ggml(to, blocks, kBlocks, /*ggml_type=*/8);
    EXPECT_TRUE(at::equal(to, codes.to(type) * scales.to(type).unsqueeze(1))) << type;
  }
  EXPECT_EQ(host_leaves().expand_ggml, nullptr);
}

TEST(OwnLeaves, AKernelThatDoesNotStartIsAnErrorWithItsName) {
  cuda::CudaKernels failing = *tessera_cuda_kernels();
  failing.rms_norm = [](auto...) { return int32_t{1}; };
  const Leaves& table = emulated_leaves();
  cuda::use_kernels(failing);
  try {
    table.rms_norm(at::ones({2, 4}), {}, at::ones({4}), 1e-5);
    FAIL() << "a norm by no kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-INTERNAL-CUDA-KERNEL");
    EXPECT_NE(std::string(error.what()).find("rms_norm"), std::string::npos) << error.what();
  }
  cuda::use_kernels(*tessera_cuda_kernels());
}

}  // namespace
}  // namespace tessera::ops
