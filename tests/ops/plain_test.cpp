#include "tessera/ops/plain.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tessera/ops/attention.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/lora.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/rms_norm.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/small_linear.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

// The op as it is, and as its plain formula.
template <class Op>
void expect_same_when_plain(const Op& op) {
  const at::Tensor fused = op();
  const PlainOps plain;
  const at::Tensor formula = op();
  ASSERT_EQ(formula.sizes(), fused.sizes());
  EXPECT_TRUE(at::allclose(formula, fused, 1e-12, 1e-12)) << (formula - fused).abs().max();
}

TEST(PlainOpsTest, AreTheFormulasOfTheOps) {
  const at::Tensor x = random_tensor({7, 12}, 1), weight = random_tensor({20, 12}, 2),
                   bias = random_tensor({20}, 3);
  const at::Tensor a = random_tensor({3, 12}, 4), b = random_tensor({20, 3}, 5),
                   scale = random_tensor({12}, 6);
  const at::Tensor up = random_tensor({7, 12}, 7);
  expect_same_when_plain([&] { return ops::linear(x, weight); });
  expect_same_when_plain([&] { return ops::linear(x, weight, bias); });
  expect_same_when_plain([&] { return lora_linear(x, weight, bias, a, b, 1.5); });
  expect_same_when_plain([&] { return lora_linear(x, weight, std::nullopt, a, b, 1.5); });
  expect_same_when_plain([&] { return ops::rms_norm(x, scale, 1e-5); });
  expect_same_when_plain([&] { return add_rms_norm(x, up, scale, 1e-5).residual; });
  expect_same_when_plain([&] { return add_rms_norm(x, up, scale, 1e-5).normed.value(); });
  expect_same_when_plain([&] { return add_rms_norm(x, std::nullopt, scale, 1e-5).normed.value(); });
  expect_same_when_plain([&] { return activate_mlp(Nonlinearity::Silu, {x, up}); });
  const at::Tensor q = random_tensor({9, 4, 6}, 8), k = random_tensor({9, 2, 6}, 9),
                   v = random_tensor({9, 2, 6}, 10);
  const at::Tensor angles = random_tensor({9, 3}, 11);
  expect_same_when_plain([&] { return apply_rope_(q.clone(), angles.cos(), angles.sin()); });
  expect_same_when_plain([&] { return document_attention(q, k, v, {0, 1, 1, 6, 9}, {0.4}); });
  expect_same_when_plain([&] {
    return document_attention(q, k, v, {0, 1, 1, 6, 9}, {.scale = 0.4, .window = 2});
  });
  expect_same_when_plain([&] {
    return document_attention(q, k, v, {0, 1, 1, 6, 9},
                              {.scale = 0.4, .is_causal = false, .window = 2, .soft_cap = 0.8});
  });
  expect_same_when_plain([&] {
    return document_attention(q, k, v, {0, 1, 1, 6, 9}, {.scale = 0.4, .soft_cap = 0.8});
  });
}

TEST(PlainOpsTest, EndWithTheirScopeAndLeaveGradientsAlone) {
  EXPECT_FALSE(PlainOps::are_on());
  {
    const PlainOps outer;
    { const PlainOps inner; }
    EXPECT_TRUE(PlainOps::are_on());
    const at::Tensor x = random_tensor({2, 4}, 1), weight = random_tensor({3, 4}, 2);
    {
      const c10::InferenceMode generation;
      EXPECT_FALSE(is_small_linear(x, weight));
    }
    gradcheck([](const Inputs& in) { return ops::linear(in[0], in[1]); }, {trained(x), trained(weight)});
  }
  EXPECT_FALSE(PlainOps::are_on());
}

}  // namespace
}  // namespace tessera::ops
