#include "tessera/ops/swiglu.h"

#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

at::Tensor fused(const Inputs& in) { return swiglu(in[0], in[1]); }
at::Tensor formula(const Inputs& in) { return at::silu(in[0]) * in[1]; }

TEST(SwigluTest, GradientsMatchCentralDifferences) {
  gradcheck(fused, {trained(random_tensor({3, 5}, 1)), trained(random_tensor({3, 5}, 2))});
}

TEST(SwigluTest, EqualsTheFormulaForEverySubsetOfGradients) {
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{5, 13}, {1, 1}, {0, 13}, {2, 3, 4}, {97, 1001}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    expect_same_for_subsets(fused, formula, {random_tensor(sizes, 3), random_tensor(sizes, 4)}, 2, 1e-12);
  }
}

TEST(SwigluTest, TakesTheHalvesOfOneTensor) {
  const at::Tensor both = random_tensor({7, 22}, 5);
  expect_same(fused, formula, {trained(both.narrow(1, 0, 11)), trained(both.narrow(1, 11, 11))}, 1e-12);
  expect_same(fused, formula,
              {trained(transposed_in_memory(random_tensor({7, 5}, 6))), trained(random_tensor({7, 5}, 7))},
              1e-12);
}

TEST(SwigluTest, Float32AndBfloat16AreNearFloat64) {
  const Inputs in = {trained(random_tensor({65, 333}, 8) * 5), trained(random_tensor({65, 333}, 9))};
  expect_near_double(fused, in, at::kFloat, 1e-6);
  expect_near_double(fused, in, at::kBFloat16, 1e-2);
}

TEST(SwigluTest, FarEndsStayFinite) {
  const at::Tensor gate = trained(at::tensor({-1e30f, -200.0f, -90.0f, 0.0f, 90.0f, 200.0f, 1e30f}));
  const at::Tensor up = trained(at::ones({7}));
  const Evaluation result = evaluate(fused, {gate, up});
  EXPECT_TRUE(result.output.isfinite().all().item<bool>());
  EXPECT_TRUE(result.gradients[1].isfinite().all().item<bool>());
  expect_near(result.output, at::silu(gate), 1e-6, "far ends");
}

TEST(SwigluTest, NanStaysNan) {
  const at::Tensor y = swiglu(at::tensor({1.0f, NAN, 2.0f}), at::tensor({1.0f, 1.0f, NAN}));
  EXPECT_FALSE(y[0].isnan().item<bool>());
  EXPECT_TRUE(y[1].isnan().item<bool>());
  EXPECT_TRUE(y[2].isnan().item<bool>());
}

}  // namespace
}  // namespace tessera::ops
