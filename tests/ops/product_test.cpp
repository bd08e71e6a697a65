#include "tessera/ops/product.h"

#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tessera/ops/product_units.h"

#include "tests/testing/skip.h"

namespace tessera::ops {
namespace {

constexpr uint64_t kSeed = 2711;

// Returns a [rows, columns] matrix that lies in the middle of a larger one, stored by rows or by columns.
at::Tensor matrix(int64_t rows, int64_t columns, bool is_transposed, at::ScalarType type) {
  const at::Tensor whole =
      is_transposed ? at::randn({columns + 3, rows + 5}).t() : at::randn({rows + 3, columns + 5});
  return whole.to(type).narrow(0, is_transposed ? 5 : 3, rows).narrow(1, is_transposed ? 3 : 5, columns);
}

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(at::kDouble) - want).norm() / want.norm().clamp_min(1e-300)).item<double>();
}

struct Shape {
  int64_t m, n, k;
};
// The sizes lie below and above the smallest size for own kernels, within and beyond what is packed at a
// time, and are not whole tiles.
const std::vector<Shape> kShapes = {{1, 1, 1},         {3, 200, 70},   {128, 128, 32},  {150, 129, 33},
                                    {131, 1000, 47},   {700, 130, 31}, {257, 163, 500}, {130, 135, 7001},
                                    {300, 1100, 3100}, {300, 16, 500}, {8, 300, 129},   {200, 9, 65}};

class Products : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Products, AreWithinTheRoundingOfTheirType) {
  const auto [a_transposed, b_transposed] = GetParam();
  at::manual_seed(kSeed);
  for (const auto& [m, n, k] : kShapes) {
    // LibTorch takes long for halves without units for them, and has no limits of what it packs.
    if (product_units<float>() == nullptr && m * n * k > int64_t{1} << 27) continue;
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const at::Tensor a = matrix(m, k, a_transposed, type), b = matrix(k, n, b_transposed, type);
      const at::Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble));
      const double tolerance = type == at::kDouble ? 1e-13 : type == at::kFloat ? 1e-6 : 4e-3;
      EXPECT_LT(relative_error(product(a, b), want), tolerance) << m << " " << n << " " << k << " " << type;
      // The output is a part of a larger matrix that holds NaN, which must stay around it.
      const at::Tensor whole = at::full({m + 2, n + 4}, std::numeric_limits<double>::quiet_NaN(), type);
      const at::Tensor part = whole.narrow(0, 1, m).narrow(1, 2, n);
      product_out(part, a, b);
      EXPECT_LT(relative_error(part, want), tolerance) << m << " " << n << " " << k << " " << type;
      EXPECT_EQ(whole.isnan().sum().item<int64_t>(), whole.numel() - m * n);
      add_product(part, a, b);
      EXPECT_LT(relative_error(part, 2 * want), tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Products, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST(Product, AddsHalvesUpInFloat32) {
  at::manual_seed(kSeed);
  for (const auto& [m, n, k] : kShapes) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      const at::Tensor a = matrix(m, k, true, type), b = matrix(k, n, false, type);
      const at::Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble));
      const at::Tensor sum = at::empty({m, n});
      product_out(sum, a, b);
      EXPECT_LT(relative_error(sum, want), 1e-6) << m << " " << n << " " << k << " " << type;
      add_product(sum, a, b);
      EXPECT_LT(relative_error(sum, 2 * want), 1e-6) << m << " " << n << " " << k << " " << type;
    }
  }
}

// A single row or column may have any stride, such as the stride 0 of an expanded gradient.
TEST(Product, TakesSingleRowsOfAnyStride) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::arange(1, 41, at::kFloat).to(type);
    const at::Tensor row = x.unsqueeze(0).expand({5, 40}).narrow(0, 0, 1),
                     one = at::ones({1, 1}, type).expand({7, 1});
    const at::Tensor ones = at::ones({40, 3}, type), sum = at::empty({1, 3});
    product_out(sum, row, ones);
    EXPECT_TRUE(sum.eq(820).all().item<bool>()) << sum;
    const at::Tensor outer = at::empty({7, 40});
    product_out(outer, one, row);
    EXPECT_TRUE(outer.eq(x).all().item<bool>());
  }
}

TEST(Product, OfNothingIsZero) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor sum = at::ones({2, 3});
    product_out(sum, at::empty({2, 0}, type), at::empty({0, 3}, type));
    EXPECT_TRUE(sum.eq(0).all().item<bool>());
    EXPECT_EQ(product(at::empty({0, 4}, type), at::empty({4, 3}, type)).numel(), 0);
    EXPECT_EQ(product(at::empty({0, 64}, type), at::empty({64, 0}, type)).numel(), 0);
  }
}

// Own kernels give the same bits for any number of threads; LibTorch's may cut a product by that number.
TEST(Product, DoesNotDependOnTheThreads) {
  at::manual_seed(kSeed);
  const int threads = at::get_num_threads();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (product_units<float>() == nullptr) continue;
    const at::Tensor a = matrix(300, 900, false, type), b = matrix(900, 500, true, type);
    at::set_num_threads(1);
    const at::Tensor alone = product(a, b);
    at::set_num_threads(3);
    const at::Tensor together = product(a, b);
    EXPECT_TRUE(at::equal(alone, together)) << type;
  }
  at::set_num_threads(threads);
}

// Products keep as many bits as float32 has, over the whole range of magnitudes in one matrix.
TEST(Product, KeepsAllBitsOfFloats) {
  if (product_units<float>() == nullptr) GTEST_SKIP() << testing::skip::kLibTorch;
  at::manual_seed(kSeed);
  const int64_t n = 160;
  const at::Tensor a = at::randn({n, n}) * at::pow(10.0, at::rand({n, 1}) * 40 - 20);
  const at::Tensor identity = at::eye(n);
  EXPECT_TRUE(at::equal(product(a.to(at::kFloat), identity), a.to(at::kFloat)));
  EXPECT_TRUE(at::equal(product(identity, a.to(at::kFloat)), a.to(at::kFloat)));
}

// The smallest floats may keep only their first bits, beside larger ones that keep all of theirs.
TEST(Product, TakesTheLeastFloatsForSmallOnes) {
  at::manual_seed(kSeed);
  const int64_t n = 160;
  const at::Tensor a = at::randn({n, n}), b = at::randn({n, n});
  const at::Tensor least = at::rand({n, n}) * 1e-33;
  const at::Tensor mixed = at::where(at::rand({n, n}) < 0.5, a, least * at::pow(10.0, at::rand({n, n}) * -5));
  const at::Tensor want = at::mm(mixed.to(at::kDouble), b.to(at::kDouble));
  EXPECT_LT(relative_error(product(mixed, b), want), 1e-6);
  EXPECT_LT(
      relative_error(product(mixed.t(), b.t()), at::mm(mixed.t().to(at::kDouble), b.t().to(at::kDouble))),
      1e-6);
}

TEST(Product, CarriesWhatIsNotFinite) {
  const int64_t n = 160;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double bad :
         {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      at::Tensor a = at::ones({n, n}, type);
      a[7][9] = bad;
      const at::Tensor result = product(a, at::ones({n, n}, type));
      EXPECT_FALSE(result[7].isfinite().any().item<bool>());
      EXPECT_TRUE(result[8].isfinite().all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace tessera::ops
