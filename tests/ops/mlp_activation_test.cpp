#include "tessera/ops/mlp_activation.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

at::Tensor fused_mlp(const Inputs& in) { return activate_mlp(Nonlinearity::Silu, {in[0], in[1]}); }
at::Tensor mlp_by_formula(const Inputs& in) { return at::silu(in[0]) * in[1]; }

TEST(SwigluTest, GradientsMatchCentralDifferences) {
  gradcheck(fused_mlp, {trained(random_tensor({3, 5}, 1)), trained(random_tensor({3, 5}, 2))});
}

TEST(SwigluTest, EqualsTheFormulaForEverySubsetOfGradients) {
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{5, 13}, {1, 1}, {0, 13}, {2, 3, 4}, {97, 1001}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    expect_same_for_subsets(fused_mlp, mlp_by_formula, {random_tensor(sizes, 3), random_tensor(sizes, 4)}, 2,
                            1e-12);
  }
}

TEST(SwigluTest, TakesTheHalvesOfOneTensor) {
  const at::Tensor both = random_tensor({7, 22}, 5);
  expect_same(fused_mlp, mlp_by_formula, {trained(both.narrow(1, 0, 11)), trained(both.narrow(1, 11, 11))},
              1e-12);
  expect_same(fused_mlp, mlp_by_formula,
              {trained(transposed_in_memory(random_tensor({7, 5}, 6))), trained(random_tensor({7, 5}, 7))},
              1e-12);
}

TEST(SwigluTest, Float32AndBfloat16AreNearFloat64) {
  const Inputs in = {trained(random_tensor({65, 333}, 8) * 5), trained(random_tensor({65, 333}, 9))};
  expect_near_double(fused_mlp, in, at::kFloat, 1e-6);
  expect_near_double(fused_mlp, in, at::kBFloat16, 1e-2);
}

TEST(SwigluTest, FarEndsStayFinite) {
  const at::Tensor gate = trained(at::tensor({-1e30f, -200.0f, -90.0f, 0.0f, 90.0f, 200.0f, 1e30f}));
  const at::Tensor up = trained(at::ones({7}));
  const Evaluation result = evaluate(fused_mlp, {gate, up});
  EXPECT_TRUE(result.output.isfinite().all().item<bool>());
  EXPECT_TRUE(result.gradients[1].isfinite().all().item<bool>());
  expect_near(result.output, at::silu(gate), 1e-6, "far ends");
}

TEST(SwigluTest, NanStaysNan) {
  const at::Tensor y = fused_mlp({at::tensor({1.0f, NAN, 2.0f}), at::tensor({1.0f, 1.0f, NAN})});
  EXPECT_FALSE(y[0].isnan().item<bool>());
  EXPECT_TRUE(y[1].isnan().item<bool>());
  EXPECT_TRUE(y[2].isnan().item<bool>());
}

// Returns the nonlinearity by its definition, made of operations that have gradients of their own.
at::Tensor mlp_by_definition(Nonlinearity f, const at::Tensor& z) {
  if (f == Nonlinearity::Silu) return z / (1 + at::exp(-z));
  if (f == Nonlinearity::Gelu) return z * (1 + at::erf(z / std::sqrt(2.0))) / 2;
  return z * (1 + at::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z.pow(3)))) / 2;
}

class MlpActivationTest : public ::testing::TestWithParam<Nonlinearity> {};

TEST_P(MlpActivationTest, EqualsTheDefinitionGatedOrNot) {
  const Nonlinearity f = GetParam();
  const Op gated = [f](const Inputs& in) { return activate_mlp(f, {in[0], in[1]}); };
  const Op gated_formula = [f](const Inputs& in) { return mlp_by_definition(f, in[0]) * in[1]; };
  const Op alone = [f](const Inputs& in) { return activate_mlp(f, {in[0], {}}); };
  const Op alone_formula = [f](const Inputs& in) { return mlp_by_definition(f, in[0]); };
  const Inputs in = {random_tensor({5, 13}, 3) * 2, random_tensor({5, 13}, 4)};
  expect_same_for_subsets(gated, gated_formula, in, 2, 1e-12);
  expect_same_for_subsets(alone, alone_formula, {in[0]}, 1, 1e-12);
  const Inputs wide = {trained(random_tensor({65, 333}, 8) * 3)};
  expect_near_double(alone, wide, at::kFloat, 2e-6);
  expect_near_double(alone, wide, at::kBFloat16, 2e-2);
}

TEST_P(MlpActivationTest, MayBeMadeAgainForAProduct) {
  const Nonlinearity f = GetParam();
  const Op fused_mlp = [f](const Inputs& in) {
    const auto again = [x = in[0], weight = in[1]] { return MlpInputs{at::linear(x, weight), {}}; };
    return at::matmul(mlp_activation(f, again()).value(), in[2]) +
           at::matmul(mlp_activation(f, again(), again).value(), in[2]);
  };
  const Op mlp_by_formula = [f](const Inputs& in) {
    return 2 * at::matmul(mlp_by_definition(f, at::linear(in[0], in[1])), in[2]);
  };
  expect_same_for_subsets(fused_mlp, mlp_by_formula,
                          {random_tensor({9, 4}, 1), random_tensor({6, 4}, 2), random_tensor({6, 5}, 3)}, 3,
                          1e-12);
}

TEST_P(MlpActivationTest, FarEndsStayFiniteAndNanStaysNan) {
  const Nonlinearity f = GetParam();
  const Op alone = [f](const Inputs& in) { return activate_mlp(f, {in[0], {}}); };
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x =
        at::tensor({-1e30, -200.0, -31.0, -12.0, 0.0, 12.0, 31.0, 200.0, 1e30}, at::kDouble).to(type);
    const Evaluation result = evaluate(alone, {trained(x)});
    expect_near(result.output.div(x.abs().clamp_min(1.0)), at::relu(x).div(x.abs().clamp_min(1.0)), 2e-3,
                "far ends");
    EXPECT_TRUE(result.gradients[0].isfinite().all().item<bool>());
    EXPECT_TRUE(alone({at::full({40}, NAN, type)}).isnan().all().item<bool>());
  }
}

TEST(ReluTest, EqualsTheFormulaWithAndWithoutAGate) {
  for (const Nonlinearity f : {Nonlinearity::Relu, Nonlinearity::Relu2}) {
    const auto value = [f](const at::Tensor& z) {
      return f == Nonlinearity::Relu ? at::relu(z) : at::relu(z) * at::relu(z);
    };
    const Op gated = [f](const Inputs& in) { return activate_mlp(f, {in[0], in[1]}); };
    const Op gated_formula = [=](const Inputs& in) { return value(in[0]) * in[1]; };
    expect_same_for_subsets(gated, gated_formula, {random_tensor({5, 13}, 3), random_tensor({5, 13}, 4)}, 2,
                            1e-13);
    const Op alone = [f](const Inputs& in) { return activate_mlp(f, {in[0], {}}); };
    const Op formula = [=](const Inputs& in) { return value(in[0]); };
    expect_same_for_subsets(alone, formula, {random_tensor({5, 13}, 5)}, 1, 1e-13);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MlpActivationTest,
                         ::testing::Values(Nonlinearity::Silu, Nonlinearity::Gelu, Nonlinearity::GeluTanh));

}  // namespace
}  // namespace tessera::ops
