// Each op has the same values and gradients by every table of leaves. CUDA's table runs on the host as far as
// LibTorch has its operations there; leaf_cuda_test.cpp tests the rest of it.
#include "tessera/ops/leaf.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/ops/leaf_tests.h"

namespace tessera::ops {
namespace {

using namespace checks;
using leaf_tests::LeavesOf, leaf_tests::TableCase;

INSTANTIATE_TEST_SUITE_P(Tables, LeavesOf,
                         ::testing::Values(TableCase{"PlainDouble", plain_leaves, at::kDouble},
                                           TableCase{"PlainFloat", plain_leaves, at::kFloat},
                                           TableCase{"PlainBFloat16", plain_leaves, at::kBFloat16},
                                           TableCase{"CudaDouble", cuda_leaves, at::kDouble},
                                           TableCase{"CudaFloat", cuda_leaves, at::kFloat},
                                           TableCase{"CudaBFloat16", cuda_leaves, at::kBFloat16}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PlainOpsTest, EndWithTheirScope) {
  const at::Tensor x = random_tensor({2, 4}, 1), weight = random_tensor({3, 4}, 2);
  const Leaves* before = &leaves(x);
  {
    const PlainOps outer;
    { const PlainOps inner; }
    EXPECT_EQ(&leaves(x), &plain_leaves());
    const c10::InferenceMode generation;
    EXPECT_FALSE(is_small_linear(x, weight));
  }
  EXPECT_EQ(&leaves(x), before);
  EXPECT_EQ(&leaves(x.to(at::kMeta)), &meta_leaves());
}

// The meta device has no memory: an op that read some, or waited for a value, would throw.
TEST(LeavesTest, ReadNoHostMemory) {
  for (const Leaves* table : {&plain_leaves(), &cuda_leaves()}) {
    const LeavesScope scope(table);
    const auto leaf = [](at::IntArrayRef sizes) {
      return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(at::kFloat)).requires_grad_();
    };
    const at::Tensor x = leaf({5, 8}), scale = leaf({8}), gate = leaf({6, 8}), up = leaf({6, 8}),
                     down = leaf({8, 6}), a = leaf({2, 6}), b = leaf({8, 2}), head = leaf({11, 8});
    accumulate_directly(gate, at::kFloat);
    const at::Tensor mask = dropout_mask({5, 6}, 0.3, 1, 2, 3, 0, x.detach().options());
    const NormedResidual normed = add_rms_norm(x, std::nullopt, scale, 1e-5);
    const Activation hidden = mlp_activation(
        Nonlinearity::Silu, {ops::linear(normed.normed, gate), ops::linear(normed.normed, up)}, {});
    const at::Tensor y = normed.residual + lora_linear(hidden, down, std::nullopt, a, b, 2.0, mask);
    const at::Tensor angles = at::empty({5, 1}, x.detach().options());
    const at::Tensor turned = apply_rope_(y * 1.0, angles, angles);
    const at::Tensor labels = at::tensor(std::vector<int64_t>{3, 1, 10, 5, 5}, at::kLong);
    // The plain formula of the loss needs LibTorch's logsumexp, which has no kernel for the meta device.
    const bool has_loss = table == &cuda_leaves();
    (has_loss ? linear_cross_entropy(turned, head, labels) : turned.sum()).backward();
    EXPECT_EQ(head.grad().defined(), has_loss);
    for (const at::Tensor& one : {x, scale, gate, up, down, a, b}) {
      ASSERT_TRUE(one.grad().defined());
      EXPECT_TRUE(one.grad().is_meta());
      EXPECT_TRUE(sum_of_squares(one.grad()).is_meta());
      cast_into(at::zeros_like(one.detach()), one.grad());
    }
    // LibTorch's fused update has no kernel for the meta device, so the plain update runs.
    const LeavesScope plain(&plain_leaves());
    const at::Tensor mean = at::zeros_like(x.detach());
    adamw({{x.detach(), x.grad(), mean, at::zeros_like(mean), {}}});
  }
}

TEST(PlainOpsTest, OperandsLieOnOneDevice) {
  const at::Tensor x = random_tensor({2, 4}, 1), weight = random_tensor({3, 4}, 2).to(at::kMeta);
  for (const auto& run :
       std::vector<std::function<void()>>{[&] { ops::linear(x, weight); }, [&] { ops::linear(weight, x); },
                                          [&] { ops::rms_norm(x, weight[0], 1e-5); },
                                          [&] { ops::linear(x, x, weight.select(1, 0).narrow(0, 0, 2)); }}) {
    try {
      run();
      FAIL() << "host memory and none in one product";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-CONFIG-OP-DEVICE");
    }
  }
}

}  // namespace
}  // namespace tessera::ops
