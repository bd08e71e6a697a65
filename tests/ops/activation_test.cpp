#include "tessera/ops/activation.h"

#include <gtest/gtest.h>

#include "tessera/ops/linear.h"
#include "tessera/ops/lora.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/rms_norm.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

constexpr double kEps = 1e-5, kScaling = 0.7;

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight) {
  return weight * (x * at::rsqrt(x.pow(2).mean(-1, true) + kEps));
}

// Runs a residual whose norm three products read. `in` is x, delta, norm weight, two weights, lora a and b.
at::Tensor fused_block(const Inputs& in) {
  const auto [residual, normed] = add_rms_norm(in[0], in[1], in[2], kEps);
  return residual.sum() * 0.1 + linear(normed, in[3]).sin().sum() + linear(normed, in[4]).cos().sum() +
         lora_linear(normed, in[4], std::nullopt, in[5], in[6], kScaling).pow(3).sum();
}
at::Tensor plain_block(const Inputs& in) {
  const at::Tensor residual = in[0] + in[1], normed = plain_norm(residual, in[2]);
  const at::Tensor adapted =
      at::linear(normed, in[4]) + kScaling * at::linear(at::linear(normed, in[5]), in[6]);
  return residual.sum() * 0.1 + at::linear(normed, in[3]).sin().sum() +
         at::linear(normed, in[4]).cos().sum() + adapted.pow(3).sum();
}
Inputs block_inputs() {
  return {random_tensor({9, 5}, 1), random_tensor({9, 5}, 2), random_tensor({5}, 3),
          random_tensor({7, 5}, 4), random_tensor({3, 5}, 5), random_tensor({2, 5}, 6),
          random_tensor({3, 2}, 7)};
}

TEST(ActivationTest, GradientsMatchCentralDifferences) {
  Inputs in = block_inputs();
  for (at::Tensor& tensor : in) tensor = trained(tensor);
  gradcheck(fused_block, in);
}

TEST(ActivationTest, ReadersOfANormEqualTheFormulaForEverySubsetOfGradients) {
  expect_same_for_subsets(fused_block, plain_block, block_inputs(), 7, 1e-11);
}

TEST(ActivationTest, ResidualWithoutDelta) {
  const Op fused = [](const Inputs& in) {
    const auto [residual, normed] = add_rms_norm(in[0], std::nullopt, in[1], kEps);
    return residual.cos() + linear(normed, in[2]);
  };
  const Op formula = [](const Inputs& in) {
    return in[0].cos() + at::linear(plain_norm(in[0], in[1]), in[2]);
  };
  expect_same_for_subsets(
      fused, formula, {random_tensor({6, 5}, 1), random_tensor({5}, 2), random_tensor({5, 5}, 3)}, 3, 1e-12);
}

TEST(ActivationTest, ANormMayAlsoBeReadAsATensor) {
  const Op fused = [](const Inputs& in) {
    const auto [residual, normed] = add_rms_norm(in[0], in[0], in[1], kEps);
    return linear(normed, in[2]) + normed.value().sin() + residual;
  };
  const Op formula = [](const Inputs& in) {
    const at::Tensor residual = in[0] + in[0], normed = plain_norm(residual, in[1]);
    return at::linear(normed, in[2]) + normed.sin() + residual;
  };
  expect_same_for_subsets(
      fused, formula, {random_tensor({6, 5}, 1), random_tensor({5}, 2), random_tensor({5, 5}, 3)}, 3, 1e-12);
}

TEST(ActivationTest, UnusedReadersTakeNoPart) {
  const Op fused = [](const Inputs& in) {
    const auto [residual, normed] = add_rms_norm(in[0], in[0], in[1], kEps);
    linear(normed, in[2]);
    return linear(normed, in[2].t());
  };
  const Op formula = [](const Inputs& in) { return at::linear(plain_norm(in[0] + in[0], in[1]), in[2].t()); };
  expect_same(
      fused, formula,
      {trained(random_tensor({6, 5}, 1)), trained(random_tensor({5}, 2)), trained(random_tensor({5, 5}, 3))},
      1e-12);
}

TEST(ActivationTest, GateAndUpMayBeMadeAgain) {
  const Op fused = [](const Inputs& in) {
    const at::Tensor gate = at::linear(in[0], in[1]), up = at::linear(in[0], in[2]);
    const auto again = [x = in[0], a = in[1], b = in[2]] {
      return MlpInputs{at::linear(x, a), at::linear(x, b)};
    };
    return linear(mlp_activation(Nonlinearity::Silu, {gate, up}, again), in[3]);
  };
  const Op formula = [](const Inputs& in) {
    return at::linear(at::silu(at::linear(in[0], in[1])) * at::linear(in[0], in[2]), in[3]);
  };
  const Inputs in = {random_tensor({9, 4}, 1), random_tensor({6, 4}, 2), random_tensor({6, 4}, 3),
                     random_tensor({5, 6}, 4)};
  expect_same_for_subsets(fused, formula, in, 4, 1e-12);
  Inputs trained_in;
  for (const at::Tensor& tensor : in) trained_in.push_back(trained(tensor));
  gradcheck(fused, trained_in);
}

TEST(ActivationTest, SwigluReadByAProductEqualsTheFormula) {
  const Op fused = [](const Inputs& in) {
    return linear(mlp_activation(Nonlinearity::Silu, {in[0], in[1]}), in[2]);
  };
  const Op formula = [](const Inputs& in) { return at::linear(at::silu(in[0]) * in[1], in[2]); };
  expect_same_for_subsets(fused, formula,
                          {random_tensor({6, 37}, 1), random_tensor({6, 37}, 2), random_tensor({4, 37}, 3)},
                          3, 1e-12);
}

// The value is released behind the forward, and the source that recomputes it by the backward pass, although
// the loss holds the graph longer.
TEST(ActivationTest, KeepsNeitherTheValueNorItsSourceLonger) {
  const at::Tensor gate = trained(random_tensor({6, 8}, 1)), up = trained(random_tensor({6, 8}, 2)),
                   weight = trained(random_tensor({3, 8}, 3));
  c10::weak_intrusive_ptr<at::TensorImpl> value(at::zeros({1}).getIntrusivePtr());
  c10::weak_intrusive_ptr<ActivationSource> source(c10::intrusive_ptr<ActivationSource>{});
  at::Tensor loss;
  {
    const Activation activation = mlp_activation(Nonlinearity::Silu, {gate, up});
    value = c10::weak_intrusive_ptr<at::TensorImpl>(activation.value().getIntrusivePtr());
    source = c10::weak_intrusive_ptr<ActivationSource>(activation.source());
    loss = linear(activation, weight).sum();
  }
  EXPECT_TRUE(value.expired());
  EXPECT_FALSE(source.expired());
  loss.backward();
  EXPECT_TRUE(source.expired());
}

}  // namespace
}  // namespace tessera::ops
