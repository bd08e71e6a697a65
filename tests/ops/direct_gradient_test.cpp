#include "tessera/ops/direct_gradient.h"

#include <gtest/gtest.h>

#include "tessera/ops/embedding.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/linear_cross_entropy.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

const std::vector<int64_t> kIds = {3, 0, 3, 7, 5, 3}, kLabels = {1, kIgnoreLabel, 7, 0, 7, 2};

at::Tensor longs(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Reads `table` as an embedding, as the weight of a product, and as the output projection.
at::Tensor fused_product(const at::Tensor& table, const at::Tensor& mix) {
  const at::Tensor hidden = ops::linear(ops::embedding(table, longs(kIds)), mix).tanh();
  const at::Tensor scores = ops::linear(hidden, table);
  return linear_cross_entropy(hidden, table, longs(kLabels), 2) * 0.3 + scores.sin().sum();
}

at::Tensor plain(const at::Tensor& table, const at::Tensor& mix) {
  const at::Tensor hidden = at::linear(at::embedding(table, longs(kIds)), mix).tanh();
  const at::Tensor scores = at::linear(hidden, table);
  return at::nll_loss(at::log_softmax(scores, -1), longs(kLabels), {}, at::Reduction::Sum) * 0.3 +
         scores.sin().sum();
}

TEST(DirectGradientTest, EqualsAutogradOverTwoBackwards) {
  const at::Tensor table = random_tensor({8, 5}, 1), mix = random_tensor({5, 5}, 2);
  const at::Tensor a = trained(table), b = trained(mix), expected_a = trained(table),
                   expected_b = trained(mix);
  accumulate_directly(a, at::kDouble);
  accumulate_directly(b, at::kDouble);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    fused_product(a, b).backward();
    plain(expected_a, expected_b).backward();
    expect_near(a.grad(), expected_a.grad(), 1e-12, "table");
    expect_near(b.grad(), expected_b.grad(), 1e-12, "mix");
  }
}

TEST(DirectGradientTest, ABfloat16ParameterGetsAFloat32Sum) {
  // The product of two bf16 values is exact in float32 and would not be exact in bf16.
  const at::Tensor weight = trained(at::ones({1, 1}, at::kBFloat16)),
                   x = at::full({1, 1}, 1.0078125, at::kBFloat16);
  accumulate_directly(weight, at::kFloat);
  ops::linear(x, weight).backward(x);
  ops::linear(x, weight).backward(x);
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(weight.grad().item<float>(), 2 * 1.0078125f * 1.0078125f);
}

TEST(DirectGradientTest, Bfloat16TableIsNearFloat64) {
  const at::Tensor table = random_tensor({8, 5}, 1, at::kBFloat16),
                   mix = random_tensor({5, 5}, 2, at::kBFloat16);
  const at::Tensor a = trained(table), b = trained(mix), expected_a = trained(table.to(at::kDouble)),
                   expected_b = trained(mix.to(at::kDouble));
  accumulate_directly(a, at::kFloat);
  accumulate_directly(b, at::kFloat);
  fused_product(a, b).backward();
  plain(expected_a, expected_b).backward();
  EXPECT_EQ(a.grad().scalar_type(), at::kFloat);
  expect_near(a.grad(), expected_a.grad(), 3e-2, "table");
  expect_near(b.grad(), expected_b.grad(), 3e-2, "mix");
}

// Counts the runs of a parameter's accumulator and copies the gradient that it finds: it runs once, after all
// that is added directly.
struct CountingHook : torch::autograd::FunctionPostHook {
  CountingHook(int* count, at::Tensor seen, at::Tensor parameter)
      : count_(count), seen_(std::move(seen)), parameter_(std::move(parameter)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++*count_;
    seen_.copy_(parameter_.grad());
    return outputs;
  }
  int* count_;
  at::Tensor seen_, parameter_;
};

TEST(DirectGradientTest, TheAccumulatorRunsWhenAllIsThere) {
  const at::Tensor table = trained(random_tensor({8, 5}, 1)), mix = random_tensor({5, 5}, 2);
  accumulate_directly(table, at::kDouble);
  int count = 0;
  const at::Tensor seen = at::zeros({8, 5}, at::kDouble);
  const auto accumulator = torch::autograd::impl::grad_accumulator(table);
  accumulator->add_post_hook(std::make_unique<CountingHook>(&count, seen, table));
  fused_product(table, mix).backward();
  EXPECT_EQ(count, 1);
  EXPECT_TRUE(at::equal(seen, table.grad()));
}

TEST(DirectGradientTest, AHookOnTheParameterStillSeesTheGradient) {
  const at::Tensor weight = trained(at::ones({2, 2}, at::kDouble)), x = at::ones({1, 2}, at::kDouble);
  accumulate_directly(weight, at::kDouble);
  weight.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
  ops::linear(x, weight).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::full({2, 2}, 3.0, at::kDouble)));
}

TEST(DirectGradientTest, AHookThatComesAfterTheForwardIsSeenToo) {
  const at::Tensor weight = trained(at::ones({2, 2}, at::kDouble)), x = at::ones({1, 2}, at::kDouble);
  accumulate_directly(weight, at::kDouble);
  const at::Tensor y = ops::linear(x, weight).sum();
  weight.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
  y.backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::full({2, 2}, 3.0, at::kDouble)));
}

TEST(DirectGradientTest, NothingIsMarkedByItself) {
  const at::Tensor weight = trained(random_tensor({3, 2}, 1));
  EXPECT_FALSE(direct_gradient_type(weight));
  accumulate_directly(weight, at::kDouble);
  EXPECT_EQ(direct_gradient_type(weight), at::kDouble);
  EXPECT_FALSE(direct_gradient_type(weight.detach()));
  EXPECT_FALSE(direct_gradient_type(weight.t()));
}

}  // namespace
}  // namespace tessera::ops
