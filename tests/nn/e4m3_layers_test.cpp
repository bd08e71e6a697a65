#include "tessera/nn/e4m3_layers.h"

#include <gtest/gtest.h>

#include "tessera/nn/linear.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/sparse_mlp.h"

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

}  // namespace
}  // namespace tessera::nn
