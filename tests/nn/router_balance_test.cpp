#include "tessera/nn/router_balance.h"

#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera::nn {
namespace {

constexpr int64_t kExperts = 4;

struct Layer {
  at::Tensor logits = at::randn({6, kExperts}, at::kDouble).set_requires_grad(true);
  at::Tensor probabilities() const { return at::softmax(logits, 1); }
  at::Tensor chosen() const { return std::get<1>(logits.detach().topk(2, 1)); }
};

// Computes the balance loss by its formula, for autograd, over the tokens that count.
at::Tensor balance_of(const std::vector<Layer>& layers, int64_t counted) {
  at::Tensor chosen = at::zeros({kExperts}, at::kDouble), probabilities = chosen;
  for (const Layer& layer : layers) {
    chosen = chosen + at::bincount(layer.chosen().narrow(0, 0, counted).flatten(), {}, kExperts);
    probabilities = probabilities + layer.probabilities().narrow(0, 0, counted).sum(0);
  }
  const double rows = static_cast<double>(counted * std::ssize(layers));
  return kExperts * (chosen / rows * (probabilities / rows)).sum();
}

// Computes the z-loss, equation 5 of ST-MoE, as a mean over layers too.
at::Tensor z_loss_of(const std::vector<Layer>& layers, int64_t counted) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const Layer& layer : layers)
    sum = sum + layer.logits.narrow(0, 0, counted).exp().sum(1).log().square().sum();
  return sum / static_cast<double>(counted * std::ssize(layers));
}

// Checks the model in one piece, and as two stages of a pipeline, which hand on hidden states of any type.
void check(const RouterLossWeights& weights) {
  const at::Tensor labels = at::tensor({3, -100, 5, 7, -100, -100}, at::kLong);
  const at::Tensor is_added = at::arange(6, at::kLong) >= 5;
  for (const auto type : {std::optional<at::ScalarType>(), std::optional(at::kDouble),
                          std::optional(at::kFloat), std::optional(at::kBFloat16)}) {
    at::manual_seed(8);
    const std::vector<Layer> layers(2);
    const auto make = [&] { return c10::make_intrusive<RouterBalance>(kExperts, weights, at::kCPU); };
    const auto add = [&](RouterBalance& balance, const Layer& layer) {
      const at::Tensor logits = balance.add_logits(layer.logits, is_added, 1.0);
      return balance.add_layer(at::softmax(logits, 1), layer.chosen(), is_added, 1.0);
    };
    const auto first = make(), last = type ? make() : first;
    at::Tensor between = add(*first, layers[0]), sent, received;
    if (type) {
      sent = first->with_sums(between.to(*type));
      EXPECT_EQ(sent.size(0), 6 + RouterBalance::carried_rows(kExperts, kExperts, *type));
      received = sent.detach().clone().set_requires_grad(true);
      between = last->take_sums(received);
      EXPECT_EQ(between.size(0), 6);
    }
    const at::Tensor read = add(*last, layers[1]).square().sum() + 0.0 * between.to(at::kDouble).sum();
    last->count_labels(labels);
    const at::Tensor values = at::ones({2}, at::kDouble);
    const at::Tensor loss = last->add_loss(read, labels, values);
    (0.5 * loss).backward();
    if (type) sent.backward(received.grad());
    std::vector<at::Tensor> got;
    for (const Layer& layer : layers) got.push_back(std::exchange(layer.logits.mutable_grad(), {}));

    const at::Tensor balance = 3 * balance_of(layers, 5), z_loss = 3 * z_loss_of(layers, 5);
    const at::Tensor want =
        layers[1].probabilities().square().sum() + weights.balance * balance + weights.z * z_loss;
    EXPECT_NEAR(values[0].item<double>(), 1.0 + balance.item<double>(), 1e-12);
    EXPECT_NEAR(values[1].item<double>(), 1.0 + z_loss.item<double>(), 1e-12);
    (0.5 * want).backward();
    EXPECT_NEAR(loss.item<double>(), want.item<double>(), 1e-12);
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_GT(got[i].abs().max().item<double>(), 1e-4);
      EXPECT_LT((got[i] - layers[i].logits.grad()).abs().max().item<double>(), 1e-12) << i;
    }
  }
}

TEST(RouterBalanceTest, BalanceAndItsGradientsAreThoseOfTheFormula) { check({.balance = 0.3}); }
TEST(RouterBalanceTest, ZLossAndItsGradientsAreThoseOfTheFormula) { check({.z = 0.7}); }
TEST(RouterBalanceTest, BothAtOnce) { check({.balance = 0.3, .z = 0.7}); }

}  // namespace
}  // namespace tessera::nn
