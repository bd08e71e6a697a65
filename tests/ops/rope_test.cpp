#include "tessera/ops/rope.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

at::Tensor fused_rope(const Inputs& in) { return apply_rope_(in[0].clone(), in[1], in[2]); }

// Returns x cos + rotate_half(x) sin, with the tables repeated over both halves.
at::Tensor rope_by_formula(const Inputs& in) {
  const at::Tensor &x = in[0], cos = at::cat({in[1], in[1]}, -1).unsqueeze(1),
                   sin = at::cat({in[2], in[2]}, -1).unsqueeze(1);
  const int64_t half = x.size(2) / 2;
  const at::Tensor rotated = at::cat({-x.narrow(2, half, half), x.narrow(2, 0, half)}, -1);
  return x * cos + rotated * sin;
}

Inputs make_rope_inputs(int64_t tokens, int64_t heads, int64_t head_dim, uint64_t seed) {
  const at::Tensor angles = random_tensor({tokens, head_dim / 2}, seed + 1) * 3;
  return {random_tensor({tokens, heads, head_dim}, seed), angles.cos(), angles.sin()};
}

TEST(RopeTest, GradientsMatchCentralDifferences) {
  Inputs in = make_rope_inputs(3, 2, 6, 1);
  in[0] = trained(in[0]);
  gradcheck(fused_rope, in);
}

TEST(RopeTest, EqualsTheFormula) {
  for (const auto& [tokens, heads, head_dim] :
       std::vector<std::array<int64_t, 3>>{{5, 3, 10}, {1, 1, 2}, {0, 3, 8}, {700, 3, 64}, {4, 1, 128}}) {
    SCOPED_TRACE(tokens);
    expect_same_for_subsets(fused_rope, rope_by_formula, make_rope_inputs(tokens, heads, head_dim, 2), 1,
                            1e-13);
  }
}

// Returns the rotation of the form by complex numbers: pair i of a head turns by angle i.
Op rope_of_form(const RopeForm& form) {
  return [form](const Inputs& in) {
    const at::Tensor& x = in[0];
    const int64_t half = in[1].size(1);
    const at::Tensor rotated = x.narrow(2, 0, 2 * half), cos = in[1].unsqueeze(1), sin = in[2].unsqueeze(1);
    const at::Tensor pairs = form.is_interleaved ? rotated.unflatten(2, {half, 2})
                                                 : rotated.unflatten(2, {2, half}).transpose(2, 3);
    const at::Tensor a = pairs.select(3, 0), b = pairs.select(3, 1);
    const at::Tensor turned = at::stack({a * cos - b * sin, b * cos + a * sin}, 3);
    const at::Tensor back = form.is_interleaved ? turned : turned.transpose(2, 3);
    return at::cat({back.flatten(2), x.narrow(2, 2 * half, x.size(2) - 2 * half)}, 2);
  };
}

TEST(RopeTest, PartsOfHeadsAndNeighboursEqualTheFormula) {
  for (const bool is_interleaved : {false, true}) {
    for (const int64_t angles : {1, 3, 5}) {
      SCOPED_TRACE(std::to_string(angles) + " angles" + (is_interleaved ? ", neighbours" : ""));
      const RopeForm form{10, is_interleaved};
      const Op fused = [form](const Inputs& in) { return apply_rope_(in[0].clone(), in[1], in[2], form); };
      Inputs in = make_rope_inputs(7, 3, 2 * angles, 5);
      in[0] = random_tensor({7, 3, 10}, 6);
      expect_same_for_subsets(fused, rope_of_form(form), in, 1, 1e-13);
    }
  }
  EXPECT_ANY_THROW(apply_rope_(at::ones({7, 3, 4}, at::kDouble), at::ones({7, 3}, at::kDouble),
                               at::ones({7, 3}, at::kDouble), {4, false}))
      << "more angles than pairs";
}

// The heads lie side by side in rows, as a product makes them.
TEST(RopeTest, RotatesInPlace) {
  const Inputs in = make_rope_inputs(6, 4, 8, 3);
  const Op in_rows = [](const Inputs& given) {
    const at::Tensor rows = given[0].reshape({6, 32}) * 1.0;
    const at::Tensor y = apply_rope_(rows, given[1], given[2]);
    EXPECT_TRUE(y.is_same(rows));
    return y.view({6, 4, 8});
  };
  expect_same(in_rows, rope_by_formula, {trained(in[0]), in[1], in[2]}, 1e-13);
  const at::NoGradGuard no_grad;
  const at::Tensor x = in[0].clone();
  EXPECT_TRUE(apply_rope_(x, in[1], in[2]).is_same(x));
  expect_near(x, rope_by_formula(in), 1e-13, "without gradient");
}

TEST(RopeTest, RefusesWhatItMayNotOverwrite) {
  const Inputs in = make_rope_inputs(6, 4, 8, 3);
  const at::Tensor leaf = trained(in[0]);
  EXPECT_ANY_THROW(apply_rope_(leaf, in[1], in[2]));
  EXPECT_ANY_THROW(apply_rope_((leaf * 1.0).view({6, 32}), in[1], in[2]));
  EXPECT_ANY_THROW(apply_rope_(with_gaps(in[0]), in[1], in[2]));
  EXPECT_ANY_THROW(apply_rope_(in[0].clone().view({6, 16, 2}), in[1], in[2]));
  // A value that another op has saved for its backward must not be changed in place.
  const at::Tensor kept = leaf * 1.0, square = kept * kept;
  EXPECT_ANY_THROW((apply_rope_(kept, in[1], in[2]) + square).sum().backward());
}

TEST(RopeTest, TheBackwardRotationUndoesTheForwardOne) {
  Inputs in = make_rope_inputs(9, 2, 16, 4);
  in[0] = trained(in[0]);
  const at::Tensor y = fused_rope(in);
  const at::Tensor back = torch::autograd::grad({y}, {in[0]}, {y.detach()})[0];
  expect_near(back, in[0], 1e-14, "rotated there and back");
}

TEST(RopeTest, KnownQuarterTurn) {
  const at::Tensor x = at::tensor({1.0, 2.0, 3.0, 4.0}).to(at::kFloat).view({1, 1, 4});
  const at::Tensor y = apply_rope_(x, at::zeros({1, 2}), at::ones({1, 2}));
  EXPECT_TRUE(at::equal(y.flatten(), at::tensor({-3.0f, -4.0f, 1.0f, 2.0f})));
}

TEST(RopeTest, Float32AndBfloat16AreNearFloat64) {
  Inputs in = make_rope_inputs(33, 3, 64, 5);
  in[0] = trained(in[0]);
  expect_near_double(fused_rope, in, at::kFloat, 1e-6);
  expect_near_double(fused_rope, in, at::kBFloat16, 1e-2);
}

TEST(RopeTest, RotatesBfloat16WithFloat32Tables) {
  const Inputs in = make_rope_inputs(5, 2, 8, 6);
  const at::Tensor y = apply_rope_(in[0].to(at::kBFloat16), in[1].to(at::kFloat), in[2].to(at::kFloat));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_near(y, rope_by_formula(in), 2e-2, "bfloat16");
}

}  // namespace
}  // namespace tessera::ops
