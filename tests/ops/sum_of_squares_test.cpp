#include "tessera/ops/sum_of_squares.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

double squares_of(const at::Tensor& x) { return sum_of_squares(x).item<double>(); }

TEST(SumOfSquaresTest, IsExactToFloat64InEveryType) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t size : {0, 1, 17, 65536, 65537, 300001}) {
      const at::Tensor x = random_tensor({size}, 5).to(type);
      const double want = x.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(squares_of(x), want, 1e-12 * want) << at::toString(type) << ' ' << size;
    }
  }
}

TEST(SumOfSquaresTest, TakesViewsAndLargeNumbers) {
  const at::Tensor x = random_tensor({40, 30}, 6, at::kFloat);
  EXPECT_EQ(squares_of(x.t()), squares_of(x.t().contiguous()));
  // The squares of these elements overflow float32.
  EXPECT_NEAR(squares_of(at::full({100}, 1e30f)), 1e62, 1e56);
}

TEST(SumOfSquaresTest, WhatIsNotFiniteShows) {
  at::Tensor x = at::ones({100000});
  x[77777] = std::nanf("");
  EXPECT_TRUE(std::isnan(squares_of(x)));
  x[77777] = INFINITY;
  EXPECT_TRUE(std::isinf(squares_of(x)));
}

TEST(SumOfSquaresTest, DoesNotDependOnTheThreads) {
  const at::Tensor x = random_tensor({1000003}, 7, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double one = squares_of(x);
  at::set_num_threads(3);
  EXPECT_EQ(squares_of(x), one);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace tessera::ops
