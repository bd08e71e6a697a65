#include "tessera/ops/take_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tessera::ops {
namespace {

// Takes three rows twice each, and expects what indexing gives and the gradient that autograd gives for it.
TEST(TakeRowsTest, GradientsOfCopiesAreSummed) {
  const at::Tensor rows = at::tensor({2, 0, 1, 1, 0, 2}, at::kLong), places = rows.argsort(/*stable=*/true);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    at::manual_seed(3);
    const at::Tensor values = at::randn({3, 5}, at::kDouble).to(type),
                     weight = at::randn({6, 5}, at::kDouble).to(type);
    at::Tensor x = values.clone().set_requires_grad(true), same = values.clone().set_requires_grad(true);
    const at::Tensor taken = take_rows(x, rows, places, 2);
    EXPECT_TRUE(at::equal(taken, values.index_select(0, rows)));
    taken.backward(weight);
    same.index_select(0, rows).backward(weight);
    EXPECT_TRUE(at::allclose(x.grad(), same.grad(), type == at::kBFloat16 ? 1e-2 : 1e-6, 1e-6));
  }
}

TEST(TakeRowsTest, APermutationAndNoRows) {
  const at::Tensor order = at::tensor({1, 2, 0}, at::kLong);
  at::Tensor x = at::arange(6, at::kDouble).view({3, 2}).set_requires_grad(true);
  const at::Tensor there = take_rows(x, order, order.argsort(), 1);
  EXPECT_TRUE(at::equal(take_rows(there, order.argsort(), order, 1), x));
  at::Tensor none = at::empty({0, 2}, at::kDouble).set_requires_grad(true);
  const at::Tensor nothing = at::empty({0}, at::kLong);
  take_rows(none, nothing, nothing, 3).sum().backward();
  EXPECT_EQ(none.grad().sizes(), at::IntArrayRef({0, 2}));
}

}  // namespace
}  // namespace tessera::ops
