#include "tessera/ops/adamw.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

struct Tensors {
  at::Tensor value, gradient, exp_avg, exp_avg_sq;
};

Tensors tensors(int64_t size, at::ScalarType type, at::ScalarType gradient_type) {
  return {random_tensor({size}, 1).to(type), (random_tensor({size}, 2) * 3).to(gradient_type),
          random_tensor({size}, 3).to(type), random_tensor({size}, 4).square().to(type)};
}

AdamWUpdate update_of(int64_t step, double decay) {
  AdamWUpdate update;
  update.step = step;
  update.learning_rate = 0.03;
  update.weight_decay = decay;
  update.gradient_scale = 0.25;
  return update;
}

// The paper's lines on whole tensors, in float64.
Tensors by_formula(const Tensors& in, const AdamWUpdate& u) {
  Tensors out = {in.value.to(at::kDouble), in.gradient.to(at::kDouble) * u.gradient_scale,
                 in.exp_avg.to(at::kDouble), in.exp_avg_sq.to(at::kDouble)};
  const auto t = static_cast<double>(u.step);
  out.exp_avg = u.beta1 * out.exp_avg + (1 - u.beta1) * out.gradient;
  out.exp_avg_sq = u.beta2 * out.exp_avg_sq + (1 - u.beta2) * out.gradient.square();
  const at::Tensor mean = out.exp_avg / (1 - std::pow(u.beta1, t)),
                   square = out.exp_avg_sq / (1 - std::pow(u.beta2, t));
  out.value = out.value - u.learning_rate * u.weight_decay * out.value -
              u.learning_rate * mean / (square.sqrt() + u.epsilon);
  return out;
}

void run(Tensors& t, const AdamWUpdate& update) {
  adamw({{t.value, t.gradient, t.exp_avg, t.exp_avg_sq, update}});
}

TEST(AdamWTest, FollowsThePaperInEveryType) {
  struct Case {
    at::ScalarType type, gradient;
    double tolerance;
  };
  for (const Case& c : std::vector<Case>{{at::kDouble, at::kDouble, 1e-14},
                                         {at::kDouble, at::kFloat, 1e-14},
                                         {at::kFloat, at::kFloat, 1e-6},
                                         {at::kFloat, at::kBFloat16, 1e-6},
                                         {at::kFloat, at::kDouble, 1e-6},
                                         {at::kBFloat16, at::kBFloat16, 1e-2},
                                         {at::kBFloat16, at::kFloat, 1e-2}}) {
    for (const int64_t size : {0, 1, 31, 40003}) {
      SCOPED_TRACE(std::string(at::toString(c.type)) + ", " + at::toString(c.gradient) + ", " +
                   std::to_string(size));
      Tensors got = tensors(size, c.type, c.gradient);
      const AdamWUpdate update = update_of(7, 0.1);
      const Tensors want = by_formula(got, update);
      const at::Tensor gradient = got.gradient.clone();
      run(got, update);
      expect_near(got.value.to(at::kDouble), want.value, c.tolerance, "value");
      expect_near(got.exp_avg.to(at::kDouble), want.exp_avg, c.tolerance, "exp_avg");
      expect_near(got.exp_avg_sq.to(at::kDouble), want.exp_avg_sq, c.tolerance, "exp_avg_sq");
      EXPECT_TRUE(at::equal(got.gradient, gradient)) << "the gradient is only read";
    }
  }
}

TEST(AdamWTest, ANarrowGradientIsTheWidenedOne) {
  Tensors narrow = tensors(1001, at::kFloat, at::kBFloat16), wide = tensors(1001, at::kFloat, at::kBFloat16);
  wide.gradient = wide.gradient.to(at::kFloat);
  for (int64_t step = 1; step <= 3; ++step) {
    run(narrow, update_of(step, 0.0));
    run(wide, update_of(step, 0.0));
  }
  EXPECT_TRUE(at::equal(narrow.value, wide.value));
  EXPECT_TRUE(at::equal(narrow.exp_avg_sq, wide.exp_avg_sq));
}

TEST(AdamWTest, EqualsLibTorch) {
  Tensors ours = tensors(70001, at::kFloat, at::kFloat), theirs = tensors(70001, at::kFloat, at::kFloat);
  for (int64_t step = 1; step <= 4; ++step) {
    run(ours, update_of(step, 0.1));
    const AdamWUpdate u = update_of(step, 0.1);
    at::_fused_adamw_({theirs.value}, {theirs.gradient * u.gradient_scale}, {theirs.exp_avg},
                      {theirs.exp_avg_sq}, {}, {at::full({}, static_cast<float>(step))}, u.learning_rate,
                      u.beta1, u.beta2, u.weight_decay, u.epsilon, false, false);
  }
  expect_near(ours.value, theirs.value, 2e-6, "value");
}

TEST(AdamWTest, TensorsThatDoNotFitAreRefused) {
  Tensors t = tensors(6, at::kFloat, at::kFloat);
  EXPECT_ANY_THROW(adamw({{t.value, t.gradient.narrow(0, 0, 5), t.exp_avg, t.exp_avg_sq, {}}}));
  EXPECT_ANY_THROW(adamw({{t.value, t.gradient, t.exp_avg.to(at::kDouble), t.exp_avg_sq, {}}}));
  EXPECT_ANY_THROW(adamw({{t.value.view({2, 3}).t(),
                           t.gradient.view({3, 2}),
                           t.exp_avg.view({3, 2}),
                           t.exp_avg_sq.view({3, 2}),
                           {}}}));
}

}  // namespace
}  // namespace tessera::ops
