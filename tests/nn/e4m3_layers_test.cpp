#include "tessera/nn/e4m3_layers.h"

#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/nn/linear.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/ops/rms_norm.h"

#include "tests/ops/telling_leaves.h"

namespace tessera::nn {
namespace {

TEST(E4m3LayersTest, AreAllLinearLayersOfAModule) {
  MLP mlp({.hidden_size = 16, .intermediate_size = 32}, at::kBFloat16);
  EXPECT_EQ(mlp.up_proj->product_type(), ops::ProductType::OfOperands);
  EXPECT_EQ(multiply_in_e4m3(mlp), 3);
  for (const auto& layer : {mlp.gate_proj, mlp.up_proj, mlp.down_proj})
    EXPECT_EQ(layer->product_type(), ops::ProductType::E4m3);
}

TEST(E4m3LayersTest, RoutersAreLeftOut) {
  SparseMLPOptions options;
  options.expert = {.hidden_size = 16, .intermediate_size = 32};
  options.num_experts = 4;
  options.experts_per_token = 2;
  SparseMLP sparse(options, at::kBFloat16);
  EXPECT_EQ(multiply_in_e4m3(sparse), 4 * 3);
  EXPECT_EQ(sparse.gate->product_type(), ops::ProductType::OfOperands);
  EXPECT_EQ(sparse.experts[3]->down_proj->product_type(), ops::ProductType::E4m3);
}

TEST(E4m3LayersTest, ALayerSaysWhatItsProductsAre) {
  const auto filled = [] {
    auto layer = std::make_shared<Linear>(16, 32, false, at::kBFloat16);
    layer->weight = at::linspace(-1.0, 1.3, 16 * 32, at::TensorOptions(at::kCPU).dtype(at::kFloat))
                        .to(at::kBFloat16)
                        .view({32, 16});
    return layer;
  };
  const at::Tensor x = filled()->weight * 0.7;
  const auto plain = filled(), cast = filled();
  cast->set_product_type(ops::ProductType::E4m3);
  const at::NoGradGuard no_grad;
  const at::Tensor want = plain->forward(x), got = cast->forward(x);
  EXPECT_FALSE(at::equal(got, want));
  const double size = want.norm().item<double>();
  EXPECT_LE((got - want).norm().item<double>(), 0.1 * size);
  EXPECT_TRUE(at::equal(filled()->forward(x), want)) << "others are as they were";
}

using ops::Casts, ops::casts;

struct Passed {
  std::vector<at::Tensor> values;  // results and gradients
  Casts forward, backward;
};

// Runs three layers after a norm: together, with the norm as the source of their input, or one by one
// without a source.
Passed pass(bool is_shared) {
  const auto numbers = [](at::IntArrayRef sizes, double from) {
    const auto options = at::TensorOptions(at::kCPU).dtype(at::kFloat);
    return at::linspace(from, 1.3, c10::multiply_integers(sizes), options)
        .sin()
        .view(sizes)
        .to(at::kBFloat16);
  };
  std::vector<std::shared_ptr<Linear>> layers;
  for (const int64_t out : {32, 16, 16}) {
    layers.push_back(std::make_shared<Linear>(48, out, false, at::kBFloat16));
    layers.back()->weight = numbers({out, 48}, -static_cast<double>(layers.size())).set_requires_grad(true);
    layers.back()->set_product_type(ops::ProductType::E4m3);
  }
  const at::Tensor x = numbers({37, 48}, -40.0).set_requires_grad(true),
                   weight = numbers({48}, 0.5).set_requires_grad(true);
  const ops::LeavesScope scope(&ops::counting_leaves());
  const auto normed = ops::add_rms_norm(x, {}, weight, 1e-5).normed;
  Passed passed;
  casts = {};
  std::vector<at::Tensor> results;
  if (is_shared) {
    results = forward_all(normed, {layers[0].get(), layers[1].get(), layers[2].get()});
  } else {
    for (const auto& layer : layers) results.push_back(layer->forward(normed.value()));
  }
  passed.forward = std::exchange(casts, {});
  at::Tensor sum;
  for (const at::Tensor& y : results)
    sum = sum.defined() ? sum + (y * y.detach()).sum() : (y * y.detach()).sum();
  sum.backward();
  passed.backward = casts;
  passed.values = results;
  for (const auto& layer : layers) passed.values.push_back(layer->weight.grad());
  passed.values.push_back(x.grad());
  passed.values.push_back(weight.grad());
  return passed;
}

TEST(E4m3LayersTest, CastsOfWhatSeveralProductsReadAreShared) {
  const Passed shared = pass(true), alone = pass(false);
  // The forward casts the input three times, and three weights. The backward casts, for each layer, the
  // gradient plain and transposed, a weight, and the input transposed; it searches only the gradients.
  EXPECT_EQ(alone.forward, (Casts{6, 6}));
  EXPECT_EQ(alone.backward, (Casts{12, 3}));
  EXPECT_EQ(shared.forward, (Casts{4, 4}));
  EXPECT_EQ(shared.backward, (Casts{10, 3}));
  ASSERT_EQ(shared.values.size(), alone.values.size());
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(at::equal(shared.values[i], alone.values[i])) << i;
}

TEST(E4m3LayersTest, AnOperandIsFoundByItsMemoryAlone) {
  const at::Tensor x = at::arange(1, 16 * 32 + 1, at::kInt).to(at::kBFloat16).view({16, 32});
  ops::E4m3Operand operand(x);
  ASSERT_NE(operand.cast_of(x), nullptr);
  EXPECT_EQ(operand.cast_of(x), operand.cast_of(x.view({16, 32}))) << "made once";
  ASSERT_NE(operand.cast_of(x.t()), nullptr);
  EXPECT_TRUE(at::equal(operand.cast_of(x.t())->codes.narrow(1, 0, 16).view(at::kByte),
                        operand.cast_of(x)->codes.view(at::kByte).t()));
  EXPECT_EQ(operand.cast_of(x.clone()), nullptr);
  EXPECT_EQ(operand.cast_of(x.narrow(0, 0, 8)), nullptr);
  EXPECT_EQ(operand.cast_of(x.view({32, 16})), nullptr);
  EXPECT_EQ(operand.cast_of(x.narrow(0, 8, 8)), nullptr);
}

}  // namespace
}  // namespace tessera::nn
