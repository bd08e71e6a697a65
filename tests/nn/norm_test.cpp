#include "tessera/nn/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/nn/head_norm.h"
#include "tessera/nn/layer_norm.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/rms_norm.h"

#include "tests/testing/gradcheck.h"

namespace tessera::nn {
namespace {

using namespace checks;

constexpr double kEps = 1e-3;

TEST(LayerNorm, EqualsItsDefinitionWithEveryGradient) {
  const Op module = [](const Inputs& in) {
    LayerNorm norm(5, {.eps = kEps}, at::kDouble);
    norm.weight = in[1];
    norm.bias = in[2];
    const auto [residual, normed] = norm.add_and_norm(in[0], in[3]);
    return norm.forward(in[0]) + normed.value() * 2 + residual.sin();
  };
  const Op formula = [](const Inputs& in) {
    const auto norm = [&](const at::Tensor& x) {
      const at::Tensor centred = x - x.mean(-1, true);
      return centred / at::sqrt(centred.pow(2).mean(-1, true) + kEps) * in[1] + in[2];
    };
    return norm(in[0]) + norm(in[0] + in[3]) * 2 + (in[0] + in[3]).sin();
  };
  expect_same_for_subsets(
      module, formula,
      {random_tensor({7, 5}, 1), random_tensor({5}, 2), random_tensor({5}, 3), random_tensor({7, 5}, 4)}, 4,
      1e-12);
}

// The mean over two halves of a row, which two ranks hold, is that over the row.
TEST(RMSNorm, PartsOfARowEqualTheWhole) {
  const at::Tensor x = random_tensor({3, 8}, 1), weight = random_tensor({8}, 2);
  const at::Tensor whole = ops::rms_norm(x, weight + 1, kEps);
  for (const int64_t half : {0, 1}) {
    RMSNorm norm(4, kEps, at::kDouble, /*adds_one=*/true);
    norm.weight = weight.narrow(0, 4 * half, 4);
    norm.set_part(
        8, [&](const at::Tensor& sum) { sum.add_(x.narrow(1, 4 - 4 * half, 4).square().sum(-1, true)); });
    expect_near(norm.forward(x.narrow(1, 4 * half, 4)), whole.narrow(1, 4 * half, 4), 1e-13, "a half");
  }
}

TEST(HeadNorm, EachHeadHasItsScale) {
  const Op module = [](const Inputs& in) {
    HeadNorm norm(2, 4, {NormOptions::Kind::Layer, kEps}, at::kDouble);
    norm.weight = in[1];
    return norm.forward(in[0]);
  };
  const Op formula = [](const Inputs& in) {
    const at::Tensor centred = in[0] - in[0].mean(-1, true);
    return centred / at::sqrt(centred.pow(2).mean(-1, true) + kEps) * in[1];
  };
  expect_same_for_subsets(module, formula, {random_tensor({5, 2, 4}, 1), random_tensor({2, 4}, 2)}, 2, 1e-12);
}

TEST(MakeNorm, MakesWhatTheOptionsName) {
  const NormOptions plain{.kind = NormOptions::Kind::Layer, .has_bias = false, .has_scale = false};
  EXPECT_TRUE(make_norm(3, plain, at::kFloat)->parameters().empty());
  const auto rms = make_norm(3, {NormOptions::Kind::Rms, kEps}, at::kFloat);
  const auto layer = make_norm(3, {NormOptions::Kind::Layer, kEps}, at::kFloat);
  EXPECT_THAT(rms->named_parameters().keys(), ::testing::ElementsAre("weight"));
  EXPECT_THAT(layer->named_parameters().keys(), ::testing::ElementsAre("weight", "bias"));
}

}  // namespace
}  // namespace tessera::nn
