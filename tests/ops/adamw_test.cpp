#include "tessera/ops/adamw.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tessera/ops/leaf.h"

#include "tests/testing/gradcheck.h"
#include "tests/testing/random.h"

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

// Returns the update by the paper's formulas on whole tensors, in float64.
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

AdamWRounding rounding_of(uint64_t seed, uint64_t step, const ElementNumbers& numbers) {
  return {{seed, 1, step}, {seed, 2, step}, {seed, 3, step}, step, numbers};
}

// Returns tensors whose new states are exact in float32, however products and sums fuse, and lie between two
// bfloat16 values: with beta1 = 1/2 and beta2 = 3/4 the states have at most 24 bits.
Tensors exact_tensors(int64_t size, at::ScalarType type, at::ScalarType gradient_type) {
  const at::Tensor i = at::arange(size, at::kLong);
  const auto between = [&](int64_t factor, int64_t most) { return (i * factor + 17) % most; };
  return {random_tensor({size}, 1).to(type),
          (between(37, 511) - 255).to(at::kDouble).div(256.0).to(gradient_type),
          (between(53, 255) - 127).to(at::kDouble).div(64.0).to(at::kBFloat16),
          (between(29, 255) + 1).to(at::kDouble).div(32.0).to(at::kBFloat16)};
}

AdamWUpdate exact_update() {
  AdamWUpdate update;
  update.step = 3;
  update.learning_rate = 0.03;
  update.weight_decay = 0.1;
  update.beta1 = 0.5;
  update.beta2 = 0.75;
  return update;
}

// Rounds x to bfloat16 in the way that AdamWRounding describes.
at::Tensor rounded(const at::Tensor& x, const CounterRng& rng, const ElementNumbers& numbers) {
  const at::Tensor bits = x.to(at::kFloat).view(at::kInt).contiguous(), to = at::empty(x.sizes(), at::kShort);
  const auto* from = bits.const_data_ptr<int32_t>();
  auto* out = to.mutable_data_ptr<int16_t>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t row = i / numbers.width;
    const auto number = static_cast<uint64_t>(numbers.first_of(row) + i - row * numbers.width);
    const uint32_t word = rng.words(number / 8)[number / 2 % 4];
    const uint32_t noise = number % 2 == 0 ? word & 0xffff : word >> 16;
    out[i] = static_cast<int16_t>((static_cast<uint32_t>(from[i]) + noise) >> 16);
  }
  return to.view(at::kBFloat16);
}

// Returns numberings of one row, of a row that begins within a word of random bits, of short rows, and of
// elements far into a parameter.
std::vector<ElementNumbers> some_numbers(int64_t size) {
  return {{.width = size},
          {.width = size, .first = 5},
          {.width = 7, .first = 3, .row_stride = 19},
          {.width = 2048, .first = 16, .row_stride = 4096},
          {.width = 8, .first = (int64_t{1} << 35) + 1, .row_stride = 24}};
}

TEST(AdamWTest, StatesAreRoundedByTheBitsOfTheirNumbers) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    for (const at::ScalarType gradient : {type, at::kBFloat16}) {
      for (const int64_t size : {1, 9, 20003}) {
        for (const ElementNumbers& numbers : some_numbers(size)) {
          SCOPED_TRACE(std::string(at::toString(type)) + ", gradient " + at::toString(gradient) + ", " +
                       std::to_string(size) + " elements in rows of " + std::to_string(numbers.width));
          const AdamWRounding rounding = rounding_of(8, 3, numbers);
          Tensors in = exact_tensors(size, type, gradient);
          const Tensors exact = by_formula(in, exact_update());
          const at::Tensor mean = rounded(exact.exp_avg, rounding.exp_avg, numbers),
                           square = rounded(exact.exp_avg_sq, rounding.exp_avg_sq, numbers);
          if (size > 9) {
            EXPECT_FALSE(at::equal(mean, exact.exp_avg.to(at::kBFloat16)));
          }
          for (const bool is_plain : {false, true}) {
            SCOPED_TRACE(is_plain ? "plain" : "kernels");
            Tensors got = exact_tensors(size, type, gradient);
            const auto run = [&] {
              adamw({{got.value, got.gradient, got.exp_avg, got.exp_avg_sq, exact_update(), rounding}});
            };
            if (is_plain) {
              const PlainOps plain;
              run();
            } else {
              run();
            }
            EXPECT_TRUE(at::equal(got.exp_avg, mean));
            EXPECT_TRUE(at::equal(got.exp_avg_sq, square));
            // The value is updated from the states before they are rounded.
            expect_near(got.value.to(at::kDouble), exact.value, type == at::kHalf ? 1e-3 : 1e-6, "value");
          }
        }
      }
    }
  }
}

// A value that only weight decay changes has an exact result, so its rounding is known to the bit.
TEST(AdamWTest, ValuesInBfloat16AreRoundedSoToo) {
  const int64_t size = 4001;
  const ElementNumbers numbers = {.width = 29, .first = 4, .row_stride = 31};
  const AdamWRounding rounding = rounding_of(3, 1, numbers);
  AdamWUpdate update;
  update.learning_rate = 1.0;
  update.weight_decay = 3.0 / 2048;
  const at::Tensor value = ((at::arange(size, at::kLong) * 31 % 255) - 127).to(at::kDouble).div(64.0),
                   want = rounded(value * (1 - 3.0 / 2048), rounding.value, numbers);
  for (const bool is_plain : {false, true}) {
    const at::Tensor got = value.to(at::kBFloat16), zeros = at::zeros_like(got);
    const LeavesScope scope(is_plain ? &plain_leaves() : &host_leaves());
    adamw({{got, zeros, zeros.clone(), zeros.clone(), update, rounding}});
    EXPECT_TRUE(at::equal(got, want)) << is_plain;
    EXPECT_FALSE(at::equal(got, value.to(at::kBFloat16)));
  }
}

TEST(AdamWTest, InfinityAndNotANumberStayWhereStatesAreRounded) {
  for (const bool is_plain : {false, true}) {
    const LeavesScope scope(is_plain ? &plain_leaves() : &host_leaves());
    const at::Tensor value = at::ones({4}),
                     gradient = at::tensor({INFINITY, -INFINITY, static_cast<float>(NAN), 1.0F}),
                     mean = at::zeros({4}, at::kBFloat16), square = at::zeros({4}, at::kBFloat16);
    adamw({{value, gradient, mean, square, exact_update(), rounding_of(1, 1, {.width = 4})}});
    EXPECT_EQ(mean[0].item<float>(), INFINITY);
    EXPECT_EQ(mean[1].item<float>(), -INFINITY);
    EXPECT_EQ(square[1].item<float>(), INFINITY);
    EXPECT_TRUE(std::isnan(mean[2].item<float>()));
    EXPECT_TRUE(std::isnan(square[2].item<float>()));
    EXPECT_EQ(mean[3].item<float>(), 0.5F);
    // A gradient factor of NaN leaves the states as they are.
    const at::Tensor before = mean.clone();
    adamw({{value, gradient, mean, square, exact_update(), rounding_of(1, 2, {.width = 4})}},
          at::full({}, NAN, at::kDouble));
    EXPECT_TRUE(at::equal(mean.view(at::kShort), before.view(at::kShort)));
  }
}

// The errors, in units of the last place, lie between -1 and 1, have the mean 0 and a variance of at most
// 1/4, and are independent: a sum of n of them stays within 6 standard deviations except in one run of 10^8.
TEST(AdamWTest, RoundingIsRightOnAverage) {
  const uint64_t seed = testing::Random::told(testing::Random::new_seed());
  constexpr int64_t kSize = int64_t{1} << 20;
  AdamWUpdate update = exact_update();
  const at::Tensor value = at::zeros({kSize}), gradient = random_tensor({kSize}, seed % 1000).to(at::kFloat),
                   mean = at::zeros({kSize}, at::kBFloat16), square = at::zeros({kSize}, at::kBFloat16);
  adamw({{value, gradient, mean, square, update, rounding_of(seed, 1, {.width = kSize})}});
  const auto errors = [](const at::Tensor& got, const at::Tensor& exact) {
    // frexp gives exact = f 2^e with f below 1; bfloat16 keeps 8 bits of f.
    const at::Tensor unit = (std::get<1>(at::frexp(exact)) - 8).to(at::kDouble).exp2();
    return (got.to(at::kDouble) - exact) / unit;
  };
  const at::Tensor of_mean = errors(mean, 0.5 * gradient.to(at::kDouble)),
                   of_square = errors(square, (0.25 * gradient * gradient).to(at::kDouble));
  const double deviation = std::sqrt(static_cast<double>(kSize));
  for (const at::Tensor& error : {of_mean, of_square}) {
    EXPECT_LT(error.abs().max().item<double>(), 1.0);
    EXPECT_GT(error.square().mean().item<double>(), 0.1) << "they are errors";
    EXPECT_LT(std::abs(error.sum().item<double>()), 6 * deviation / 2);
    const at::Tensor next = error.narrow(0, 1, kSize - 1) * error.narrow(0, 0, kSize - 1);
    EXPECT_LT(std::abs(next.sum().item<double>()), 6 * deviation / 4);
  }
  EXPECT_LT(std::abs((of_mean * of_square).sum().item<double>()), 6 * deviation / 4);
}

// Only random rounding lets a bfloat16 state follow steps of 0.1 %, which are less than half of its last
// place.
TEST(AdamWTest, StatesFollowStepsBelowTheirLastPlace) {
  const uint64_t seed = testing::Random::told(testing::Random::new_seed());
  constexpr int64_t kSize = 4096, kSteps = 1000;
  const at::Tensor value = at::zeros({kSize}), gradient = at::zeros({kSize}),
                   mean = at::zeros({kSize}, at::kBFloat16), square = at::ones({kSize}, at::kBFloat16),
                   stuck = square.clone();
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto t = static_cast<uint64_t>(step);
    adamw({{value, gradient, mean, square, update_of(step, 0.0), rounding_of(seed, t, {.width = kSize})}});
    adamw({{value, gradient, mean, stuck, update_of(step, 0.0)}});
  }
  // Each step adds a standard deviation of at most 2^-9 to an element: 0.062 after all steps, and 0.001 in
  // the mean over the elements.
  const double want = std::pow(0.999, kSteps);
  EXPECT_NEAR(square.to(at::kDouble).mean().item<double>(), want, 0.006);
  EXPECT_GT(stuck.to(at::kDouble).mean().item<double>(), 0.9) << "to nearest even";
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
  const at::Tensor narrow = t.exp_avg.to(at::kBFloat16);
  EXPECT_ANY_THROW(adamw({{t.value, t.gradient, narrow, t.exp_avg_sq, {}}}));
  EXPECT_ANY_THROW(
      adamw({{t.value, t.gradient, t.exp_avg, t.exp_avg_sq, {}, rounding_of(1, 1, {.width = 6})}}));
  EXPECT_ANY_THROW(
      adamw({{t.value, t.gradient, narrow, narrow.clone(), {}, rounding_of(1, 1, {.width = 0})}}));
}

}  // namespace
}  // namespace tessera::ops
