#include "tessera/ops/stochastic_rounding.h"

#include <array>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/device/device.h"
#include "tessera/ops/random_elements.h"

namespace tessera::ops {
namespace {

RoundingBits bits_of(uint64_t step, const ElementNumbers& numbers) {
  return {CounterRng(7, stream_of("w"), step), step, numbers};
}

at::Tensor rounded(const at::Tensor& from, const RoundingBits& bits) {
  const at::Tensor to = at::empty(from.sizes(), from.options().dtype(at::kBFloat16));
  round_into(to, from, bits);
  return to;
}

TEST(StochasticRoundingTest, IsRightInTheMean) {
  // A fifth of the way from 1 to the next number of bfloat16.
  const double step = 0x1p-7, value = 1.0 + 0.2 * step;
  const at::Tensor from = at::full({40000}, value, on_host(at::kFloat));
  const at::Tensor to = rounded(from, bits_of(3, {40000})).to(at::kDouble);
  EXPECT_EQ(to.min().item<double>(), 1.0);
  EXPECT_EQ(to.max().item<double>(), 1.0 + step);
  EXPECT_NEAR(to.mean().item<double>(), value, 0.01 * step);
  EXPECT_FALSE(at::equal(rounded(from, bits_of(4, {40000})).to(at::kDouble), to)) << "each step draws anew";
}

TEST(StochasticRoundingTest, KeepsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor from =
      at::tensor({kInfinity, -kInfinity, std::nanf(""), 3.0f, -0.0f}, on_host(at::kFloat));
  for (uint64_t step = 0; step < 50; ++step) {
    const at::Tensor to = rounded(from, bits_of(step, {5})).to(at::kFloat);
    EXPECT_EQ(to[0].item<float>(), kInfinity);
    EXPECT_EQ(to[1].item<float>(), -kInfinity);
    EXPECT_TRUE(std::isnan(to[2].item<float>()));
    EXPECT_EQ(to[3].item<float>(), 3.0f);
    EXPECT_TRUE(std::signbit(to[4].item<float>()));
  }
}

// Bits belong to the places of elements, so that parts of a tensor are rounded as the whole, and both ways to
// draw them agree.
TEST(StochasticRoundingTest, PartsAreRoundedAsTheWhole) {
  const int64_t rows = 37, width = 101;
  const at::Tensor from = at::randn({rows, width}, on_host(at::kFloat));
  const RoundingBits whole = bits_of(9, {width, 0, width});
  const at::Tensor want = rounded(from.view({-1}), whole).view({rows, width});
  EXPECT_TRUE(
      at::equal(rounded_by(whole.on_device(0, rows * width, kHost), from.view({-1})), want.view({-1})));
  for (const auto& [row, column, height, part] :
       {std::array<int64_t, 4>{0, 0, 37, 50}, {3, 13, 20, 88}, {36, 100, 1, 1}}) {
    const at::Tensor some = from.narrow(0, row, height).narrow(1, column, part).contiguous();
    const at::Tensor got = rounded(some.view({-1}), bits_of(9, {part, row * width + column, width}));
    EXPECT_TRUE(at::equal(got.view({height, part}), want.narrow(0, row, height).narrow(1, column, part)));
  }
}

}  // namespace
}  // namespace tessera::ops
