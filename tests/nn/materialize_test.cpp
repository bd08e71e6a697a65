#include "tessera/nn/materialize.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/nn/linear.h"

namespace tessera::nn {
namespace {

struct Product : torch::nn::Module {
  explicit Product(at::IntArrayRef shape) {
    weight = register_parameter("weight",
                                at::empty(shape, at::TensorOptions().device(at::kMeta).dtype(at::kDouble)));
  }
  at::Tensor weight;
};

TEST(Materialize, EveryHandleSeesTheValuesAndAutogradWorks) {
  Product module({2, 3});
  at::Tensor handle = module.parameters().front();
  const at::Tensor value = at::arange(6, at::kDouble).view({2, 3});
  materialize(handle, value);

  EXPECT_TRUE(module.weight.device().is_cpu());
  EXPECT_TRUE(module.weight.is_same(module.named_parameters()["weight"]));
  EXPECT_TRUE(at::equal(module.weight.detach(), value));
  EXPECT_TRUE(module.weight.requires_grad());
  EXPECT_TRUE(module.weight.is_leaf());
  EXPECT_EQ(module.weight.data_ptr(), value.data_ptr());

  (module.weight * module.weight).sum().backward();
  EXPECT_TRUE(at::equal(module.weight.grad(), 2.0 * value));
}

TEST(Materialize, AnAccumulatorMadeOnMetaIsReplaced) {
  Product module({4, 2});
  // Building a graph on the meta device makes the gradient accumulator.
  const at::Tensor meta_graph = module.weight.sum();
  ASSERT_TRUE(meta_graph.requires_grad());
  materialize(module.weight, at::ones({2, 2}, at::kDouble));  // a shard with fewer rows
  (3.0 * module.weight).sum().backward();
  EXPECT_TRUE(at::equal(module.weight.grad(), at::full({2, 2}, 3.0, at::kDouble)));
}

TEST(Materialize, KeepsHooksAndFrozenState) {
  Product module({2, 2});
  int calls = 0;
  module.weight.register_hook([&](const at::Tensor& grad) {
    ++calls;
    return grad * 2.0;
  });
  materialize(module.weight, at::ones({2, 2}, at::kDouble));
  module.weight.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(module.weight.grad(), at::full({2, 2}, 2.0, at::kDouble)));

  Product frozen({2, 2});
  frozen.weight.set_requires_grad(false);
  materialize(frozen.weight, at::ones({2, 2}, at::kDouble));
  EXPECT_FALSE(frozen.weight.requires_grad());
}

TEST(Materialize, AgainWithAnotherValue) {
  Product module({2, 2});
  materialize(module.weight, at::ones({2, 2}, at::kDouble));
  module.weight.sum().backward();
  materialize(module.weight, at::full({2, 2}, 5.0, at::kDouble));
  EXPECT_FALSE(module.weight.grad().defined());
  (module.weight * module.weight).sum().backward();
  EXPECT_TRUE(at::equal(module.weight.grad(), at::full({2, 2}, 10.0, at::kDouble)));
}

TEST(Materialize, RefusesAValueWithGradient) {
  Product module({2, 2});
  const at::Tensor value = at::ones({2, 2}, at::kDouble).requires_grad_();
  EXPECT_THROW(materialize(module.weight, value), Error);
}

}  // namespace
}  // namespace tessera::nn
