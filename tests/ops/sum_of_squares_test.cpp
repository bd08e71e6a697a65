#include "tessera/ops/sum_of_squares.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

TEST(SumOfSquaresTest, IsExactToFloat64InEveryType) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t size : {0, 1, 17, 65536, 65537, 300001}) {
      const at::Tensor x = random_tensor({size}, 5).to(type);
      const double want = x.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(sum_of_squares(x), want, 1e-12 * want) << at::toString(type) << ' ' << size;
    }
  }
}

TEST(SumOfSquaresTest, TakesViewsAndLargeNumbers) {
  const at::Tensor x = random_tensor({40, 30}, 6, at::kFloat);
  EXPECT_EQ(sum_of_squares(x.t()), sum_of_squares(x.t().contiguous()));
  // Their squares overflow float32.
  EXPECT_NEAR(sum_of_squares(at::full({100}, 1e30f)), 1e62, 1e56);
}

TEST(SumOfSquaresTest, WhatIsNotFiniteShows) {
  at::Tensor x = at::ones({100000});
  x[77777] = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_of_squares(x)));
  x[77777] = INFINITY;
  EXPECT_TRUE(std::isinf(sum_of_squares(x)));
}

TEST(SumOfSquaresTest, DoesNotDependOnTheThreads) {
  const at::Tensor x = random_tensor({1000003}, 7, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double one = sum_of_squares(x);
  at::set_num_threads(3);
  EXPECT_EQ(sum_of_squares(x), one);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace tessera::ops
