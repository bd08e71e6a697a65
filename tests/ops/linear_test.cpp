#include "tessera/ops/linear.h"

#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

at::Tensor fused_linear(const Inputs& in) {
  return ops::linear(in[0], in[1], in.size() > 2 ? std::optional(in[2]) : std::nullopt);
}
at::Tensor linear_by_formula(const Inputs& in) {
  const at::Tensor product = at::matmul(in[0], in[1].t());
  return in.size() > 2 ? product + in[2] : product;
}

TEST(LinearTest, GradientsMatchCentralDifferences) {
  gradcheck(fused_linear, {trained(random_tensor({2, 3, 4}, 1)), trained(random_tensor({5, 4}, 2)),
                           trained(random_tensor({5}, 3))});
}

TEST(LinearTest, EqualsTheFormulaForEverySubsetOfGradients) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{5, 7}, {1, 7}, {0, 7}, {2, 3, 7}, {7}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    const Inputs in = {random_tensor(sizes, 4), random_tensor({3, 7}, 5), random_tensor({3}, 6)};
    expect_same_for_subsets(fused_linear, linear_by_formula, in, 3, 1e-12);
    expect_same_for_subsets(fused_linear, linear_by_formula, {in[0], in[1]}, 2, 1e-12);
  }
}

TEST(LinearTest, TakesInputsThatAreNotContiguous) {
  const at::Tensor x = random_tensor({4, 6, 7}, 7), weight = random_tensor({5, 7}, 8);
  for (const at::Tensor& laid_out : {with_gaps(x), transposed_in_memory(x)}) {
    expect_same(fused_linear, linear_by_formula, {trained(laid_out), trained(transposed_in_memory(weight))},
                1e-12);
    expect_same(fused_linear, linear_by_formula, {trained(laid_out), trained(with_gaps(weight))}, 1e-12);
  }
}

TEST(LinearTest, TakesAnExpandedGradient) {
  const at::Tensor x = trained(random_tensor({4, 7}, 9)), weight = trained(random_tensor({5, 7}, 10));
  const auto total = [](const auto& op, const Inputs& in) { return op(in).sum(); };
  expect_same([&](const Inputs& in) { return total(fused_linear, in); },
              [&](const Inputs& in) { return total(linear_by_formula, in); }, {x, weight}, 1e-12);
}

TEST(LinearTest, Float32AndBfloat16AreNearFloat64) {
  const Inputs in = {trained(random_tensor({33, 65}, 11)), trained(random_tensor({31, 65}, 12)),
                     trained(random_tensor({31}, 13))};
  expect_near_double(fused_linear, in, at::kFloat, 1e-6);
  expect_near_double(fused_linear, in, at::kBFloat16, 1e-2);
}

// Drops the last handle of a tensor and returns a weak pointer to its storage, which shows if somebody else
// keeps the numbers.
c10::weak_intrusive_ptr<c10::StorageImpl> drop(at::Tensor& tensor) {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage(tensor.storage().getWeakStorageImpl());
  tensor.reset();
  return storage;
}

TEST(LinearTest, AFrozenWeightKeepsNoActivation) {
  const at::Tensor leaf = trained(random_tensor({4, 7}, 14)), frozen = random_tensor({5, 7}, 15);
  at::Tensor x = leaf * 2;
  const at::Tensor y = ops::linear(x, frozen);
  EXPECT_TRUE(drop(x).expired());
  expect_near(torch::autograd::grad({y}, {leaf}, {at::ones_like(y)})[0], 2 * at::ones_like(y).matmul(frozen),
              1e-12, "gradient of x");

  at::Tensor kept = leaf * 2;
  const at::Tensor z = ops::linear(kept, trained(frozen));
  EXPECT_FALSE(drop(kept).expired()) << "a trained weight needs the activation";
}

TEST(LinearTest, ADataInputKeepsNoWeight) {
  const at::Tensor x = random_tensor({4, 7}, 16);
  at::Tensor weight = trained(random_tensor({5, 7}, 17)) * 1;
  const at::Tensor y = ops::linear(x, weight);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_TRUE(drop(weight).expired());
}

// Sharded training frees a weight after the forward pass and fills it again before the backward pass.
TEST(LinearTest, BackwardReadsTheWeightWhereTheCallerKeepsIt) {
  const at::Tensor weight = trained(random_tensor({5, 7}, 19)), x = trained(random_tensor({4, 7}, 20));
  const at::Tensor y = ops::linear(x, weight);
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    weight.fill_(3.0);
  }
  const at::Tensor grad = torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0];
  expect_near(grad, at::full({4, 7}, 15.0, at::kDouble), 1e-12, "gradient through the refilled weight");
}

TEST(LinearTest, TheOutputMayBeChangedInPlace) {
  const at::Tensor weight = trained(random_tensor({5, 7}, 21)), x = trained(random_tensor({2, 3, 7}, 22));
  at::Tensor y = ops::linear(x, weight);
  y.add_(1);
  expect_near(torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0],
              at::ones_like(y).matmul(weight.detach()), 1e-12, "gradient after add_");
}

}  // namespace
}  // namespace tessera::ops
