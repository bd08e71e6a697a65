// Tests e4m3 scales that are kept with a tensor: each holds until the tensor is written, whoever writes it.
#include <functional>
#include <utility>

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tessera/ops/deferred_gradient.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/pass_through.h"
#include "tessera/ops/rms_norm.h"
#include "tessera/ops/rope.h"

#include "tests/ops/telling_leaves.h"
#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

at::Tensor random_values(at::IntArrayRef sizes, uint64_t seed) {
  return random_tensor(sizes, seed, at::kBFloat16);
}

at::Tensor scale_of(const at::Tensor& x) { return host_leaves().to_e4m3(flatten_rows(x), {}).scale; }

// Returns values [6, 32] with a kept scale; with `has_graph` they are the output of an op that autograd has
// recorded.
at::Tensor said(bool has_graph) {
  at::Tensor x = random_values({6, 32}, 1);
  if (has_graph) x = trained(x) * 2.0;
  keep_e4m3_scale(x, scale_of(x.detach()));
  EXPECT_TRUE(known_e4m3_scale(x).defined());
  return x;
}

TEST(KnownScale, HoldsUntilTheTensorIsWritten) {
  const at::Tensor angles = random_tensor({6, 16}, 2, at::kFloat);
  const std::vector<std::pair<const char*, std::function<void(at::Tensor&)>>> writers = {
      {"LibTorch", [](at::Tensor& x) { x.mul_(2.0); }},
      {"a copy",
       [](at::Tensor& x) {
         x.copy_(random_values({6, 32}, 3));
       }},
      {"a view", [](at::Tensor& x) { x.view({-1}).add_(1.0); }},
      {"a part", [](at::Tensor& x) { x.select(0, 2).zero_(); }},
      {"an alias without graph", [](at::Tensor& x) { x.detach().add_(1.0); }},
      {"other values",
       [](at::Tensor& x) {
         x.set_data(random_values({6, 32}, 4));
       }},
      {"fewer values", [](at::Tensor& x) { x.set_data(x.detach().slice(0, 0, 3)); }},
      {"rope", [&](at::Tensor& x) { x = apply_rope_(x, angles.cos(), angles.sin()); }},
      {"a sum over ranks",
       [](at::Tensor& x) {
         // This writes the memory without LibTorch's knowledge, as received messages do.
         x = change_value_(
             x, [](const at::Tensor& y) { static_cast<uint16_t*>(y.mutable_data_ptr())[3] = 0x4500; });
       }},
  };
  for (const bool has_graph : {false, true}) {
    for (const auto& [name, write] : writers) {
      at::Tensor x = said(has_graph);
      const at::Tensor view = x.view({12, 16});
      write(x);
      EXPECT_FALSE(known_e4m3_scale(x).defined()) << name << (has_graph ? " with a graph" : "");
      const bool is_view = x.const_data_ptr() == view.const_data_ptr();
      EXPECT_FALSE(is_view && known_e4m3_scale(view).defined()) << name;
    }
  }
}

TEST(KnownScale, IsOfTheTensorAndOfViewsOfAllOfIt) {
  const at::Tensor x = said(false), scale = known_e4m3_scale(x);
  EXPECT_TRUE(known_e4m3_scale(x.view({3, 64})).is_same(scale));
  EXPECT_TRUE(known_e4m3_scale(x.view({3, 64}).view({-1})).is_same(scale));
  for (const at::Tensor& other : {x.clone(), x.detach(), x.t(), x.narrow(0, 0, 3), x.slice(0, 1), x * 1.0,
                                  x.expand({2, 6, 32}), x.to(at::kFloat)})
    EXPECT_FALSE(known_e4m3_scale(other).defined()) << other.sizes();
  EXPECT_FALSE(known_e4m3_scale({}).defined());
  keep_e4m3_scale({}, scale);
  keep_e4m3_scale(x, {});
  EXPECT_TRUE(known_e4m3_scale(x).is_same(scale)) << "nothing was said";
  const c10::InferenceMode inference;
  const at::Tensor uncounted = random_values({6, 32}, 1);
  keep_e4m3_scale(uncounted, scale);
  EXPECT_FALSE(known_e4m3_scale(uncounted).defined()) << "its writes are not counted";
  note_write(uncounted);
}

// Autograd sums the gradients of several readers, perhaps in the memory of one of them.
TEST(KnownScale, AGradientThatOthersAddToIsLookedAt) {
  for (const bool comes_first : {false, true}) {
    const at::Tensor x = trained(random_values({40, 48}, 1)), weight = trained(random_values({32, 48}, 2));
    const LeavesScope scope(&telling_leaves());
    const ProductScope products(ProductType::E4m3);
    const at::Tensor gate = ops::linear(x, weight);
    // The backward of the op that was made last runs first.
    const at::Tensor other = comes_first ? at::Tensor() : gate * 7.0;
    const at::Tensor y = activate_mlp(Nonlinearity::Silu, {gate, {}});
    const at::Tensor sum = y + (other.defined() ? other : gate * 7.0);
    casts = {};
    sum.backward(direction_of(sum));
    EXPECT_EQ(casts, (Casts{4, 1})) << comes_first;
  }
}

TEST(KnownScale, AHookMayWriteAGradient) {
  for (const bool writes : {false, true}) {
    const at::Tensor x = trained(random_values({40, 48}, 1)), weight = trained(random_values({32, 48}, 2));
    const LeavesScope scope(&telling_leaves());
    const ProductScope products(ProductType::E4m3);
    const at::Tensor gate = ops::linear(x, weight);
    gate.register_hook([writes](at::Tensor grad) {
      if (writes) grad.mul_(3.0);
    });
    const at::Tensor y = activate_mlp(Nonlinearity::Silu, {gate, {}});
    casts = {};
    y.backward(direction_of(y));
    EXPECT_EQ(casts, (Casts{4, writes ? 1 : 0}));
  }
}

// The gradient changes as it does when tensor parallel ranks sum the gradients of a region's input.
TEST(KnownScale, PassesWithAValueWhoseGradientChanges) {
  const at::Tensor x = trained(random_values({40, 48}, 1)), norm = trained(random_values({48}, 2));
  const at::Tensor weights[] = {trained(random_values({32, 48}, 3)), trained(random_values({32, 48}, 4))};
  const LeavesScope scope(&telling_leaves());
  const ProductScope products(ProductType::E4m3);
  const Activation passed = change_gradient(add_rms_norm(x, {}, norm, 1e-5).normed,
                                            [](const at::Tensor& gradient) { gradient.mul_(2.0); });
  EXPECT_TRUE(known_e4m3_scale(passed.value()).defined());
  casts = {};
  const at::Tensor y = ops::linear(passed, weights[0]) + ops::linear(passed, weights[1]);
  EXPECT_EQ(casts, (Casts{4, 2})) << "two weights";
  casts = {};
  y.backward(direction_of(y));
  EXPECT_EQ(casts, (Casts{2 * 3 + 1, 2})) << "two gradients; the input, turned once, is the value again";
}

// A product that the backward defers keeps the scales of its operands.
TEST(KnownScale, HoldsForProductsThatAreLeftOver) {
  const at::Tensor x = trained(random_values({40, 48}, 1)), norm = random_values({48}, 2);
  const at::Tensor weight = trained(random_values({32, 48}, 3));
  accumulate_directly(weight, at::kFloat);
  const LeavesScope scope(&telling_leaves());
  DeferredGradients later;
  {
    const ProductScope products(ProductType::E4m3);
    const at::Tensor gate = ops::linear(add_rms_norm(x, {}, norm, 1e-5).normed, weight);
    const at::Tensor y = activate_mlp(Nonlinearity::Silu, {gate, {}});
    const DeferGradientsScope defers(&later);
    casts = {};
    y.backward(direction_of(y));
    EXPECT_EQ(casts, (Casts{2, 0}));
  }
  casts = {};
  later.run();
  EXPECT_EQ(casts, (Casts{2, 0}));
}

}  // namespace
}  // namespace tessera::ops
