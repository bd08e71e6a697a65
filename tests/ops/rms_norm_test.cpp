#include "tessera/ops/rms_norm.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

constexpr double kNormEps = 1e-5;

at::Tensor fused_norm(const Inputs& in) { return rms_norm(in[0], in[1], kNormEps); }

// Returns the norm as Transformers' LlamaRMSNorm computes it.
at::Tensor norm_by_formula(const Inputs& in) {
  const auto type = in[0].scalar_type();
  const at::Tensor x = in[0].to(type == at::kDouble ? at::kDouble : at::kFloat);
  return in[1] * (x * at::rsqrt(x.pow(2).mean(-1, true) + kNormEps)).to(type);
}

TEST(RmsNormTest, GradientsMatchCentralDifferences) {
  gradcheck(fused_norm, {trained(random_tensor({3, 2, 7}, 1)), trained(random_tensor({7}, 2))});
}

TEST(RmsNormTest, EqualsTheFormulaForEverySubsetOfGradients) {
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{5, 13}, {1, 13}, {2, 3, 13}, {13}, {0, 13}, {130, 13}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    expect_same_for_subsets(fused_norm, norm_by_formula, {random_tensor(sizes, 3), random_tensor({13}, 4)}, 2,
                            1e-12);
  }
}

TEST(RmsNormTest, TakesInputsThatAreNotContiguous) {
  const at::Tensor x = random_tensor({6, 4, 9}, 5), weight = random_tensor({9}, 6);
  for (const at::Tensor& laid_out : {with_gaps(x), transposed_in_memory(x)}) {
    ASSERT_FALSE(laid_out.is_contiguous());
    expect_same(fused_norm, norm_by_formula, {trained(laid_out), trained(weight)}, 1e-12);
  }
}

TEST(RmsNormTest, Float32IsNearFloat64) {
  expect_near_double(fused_norm, {trained(random_tensor({65, 576}, 7)), trained(random_tensor({576}, 8))},
                     at::kFloat, 2e-6);
}

TEST(RmsNormTest, Bfloat16FollowsTransformersToTheBit) {
  const at::Tensor x = random_tensor({9, 67}, 9, at::kBFloat16),
                   weight = random_tensor({67}, 10, at::kBFloat16);
  const at::Tensor y = fused_norm({x, weight});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  // One unit in the last place may differ where the row's statistics were summed in another order.
  EXPECT_LE((y != norm_by_formula({x, weight})).sum().item<int64_t>(), 3);
  expect_near_double(fused_norm, {trained(x), trained(weight)}, at::kBFloat16, 2e-2);
}

TEST(RmsNormTest, WeightMayHaveAnotherType) {
  const at::Tensor x = trained(random_tensor({4, 8}, 11, at::kBFloat16)),
                   weight = trained(random_tensor({8}, 12, at::kFloat));
  const Evaluation result = evaluate(fused_norm, {x, weight});
  EXPECT_EQ(result.output.scalar_type(), at::kBFloat16);
  EXPECT_EQ(result.gradients[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(result.gradients[1].scalar_type(), at::kFloat);
}

TEST(RmsNormTest, LeavesNoNodeWithoutGradMode) {
  const at::Tensor x = trained(random_tensor({4, 8}, 13)), weight = trained(random_tensor({8}, 14));
  at::NoGradGuard no_grad;
  EXPECT_FALSE(rms_norm(x, weight, kNormEps).requires_grad());
}

TEST(RmsNormTest, RefusesWhatItCannotCompute) {
  EXPECT_THROW(rms_norm(at::ones({2, 4}, at::kLong), at::ones({4}), kNormEps), Error);
  EXPECT_THROW(rms_norm(at::ones({2, 4}), at::ones({5}), kNormEps), Error);
  const at::Tensor x = trained(random_tensor({2, 4}, 15));
  const at::Tensor y = rms_norm(x, at::ones({4}, at::kDouble), kNormEps).sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true), Error);
}

}  // namespace
}  // namespace tessera::ops
