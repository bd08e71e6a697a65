// Tests of products by cuBLASLt, with a stub of it that checks the calls and multiplies on the host.
#include "tessera/ops/cuda/lt_product.h"

#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/ops/leaf.h"

#include "tests/ops/cuda/stub_lt.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/stub_library.h"

namespace tessera::ops::cuda {
namespace {

using checks::random_tensor;
using ::testing::HasSubstr;

class LtProduct : public ::testing::Test {
 protected:
  void SetUp() override {
    stub_->handles = stub_->queries = stub_->products = 0;
    stub_->query_status = stub_->product_status = 0;
  }
  void TearDown() override {
    EXPECT_EQ(stub_->live, 0);
    EXPECT_EQ(stub_->faults, 0);
  }

  static E4m3Matrix matrix(int64_t rows, int64_t depth, uint64_t seed) {
    const at::Tensor x = random_tensor({rows, depth}, seed).to(at::kBFloat16);
    return leaves(x).to_e4m3(x, {});
  }
  static at::Tensor sum_of(int64_t rows, int64_t width, at::ScalarType type) {
    return random_tensor({rows, width}, 3).to(type);
  }
  // Returns the sum with the product added in float64, rounded once.
  static at::Tensor added(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b) {
    const auto exact = [](const at::Tensor& x) { return x.to(at::kFloat).to(at::kDouble); };
    const at::Tensor product = at::mm(exact(a.codes), exact(b.codes).t());
    return (product * (exact(a.scale) * exact(b.scale)) + exact(sum)).to(at::kFloat).to(sum.scalar_type());
  }
  void expect_declined(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b) {
    const at::Tensor before = sum.clone();
    EXPECT_FALSE(products_.add_scaled(sum, a, b));
    EXPECT_TRUE(at::equal(sum, before));
    EXPECT_EQ(stub_->products, 0);
  }

  static LtLibrary library() {
    std::string why_not;
    return LtLibrary::open(why_not, TESSERA_STUB_LT).value();
  }

  testing::StubLt* const stub_ = &testing::stub_of<testing::StubLt>(TESSERA_STUB_LT, "stub_lt");
  LtProducts products_{library()};
};

TEST_F(LtProduct, AddsToASumOfEitherType) {
  int made = 0;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {1, 37}) {
      for (const int64_t width : {16, 80}) {
        for (const int64_t depth : {3, 40, 128}) {
          const E4m3Matrix a = matrix(rows, depth, 1), b = matrix(width, depth, 2);
          const at::Tensor sum = sum_of(rows, width, type), plain = sum.clone();
          const at::Tensor want = added(sum, a, b);
          leaves(plain).multiply_e4m3(plain, a, b, true);
          ASSERT_TRUE(products_.add_scaled(sum, a, b));
          EXPECT_EQ(stub_->products, ++made);
          // The order of the sums in float64 may change the last bit of a float32.
          EXPECT_TRUE(at::allclose(sum, want, type == at::kFloat ? 1e-6 : 1e-2, 1e-6));
          EXPECT_TRUE(at::allclose(sum, plain, type == at::kFloat ? 1e-5 : 2e-2, 1e-2));
        }
      }
    }
  }
}

TEST_F(LtProduct, RoundsTheSumAndNotTheProduct) {
  const auto rows_of = [](const std::vector<float>& codes) {
    const at::Tensor row = at::zeros({16, 16});
    for (size_t i = 0; i < codes.size(); ++i) row.select(1, static_cast<int64_t>(i)).fill_(codes[i]);
    return E4m3Matrix{row.to(at::kFloat8_e4m3fn), at::ones({}, at::kFloat)};
  };
  // The product 257 is no bfloat16 number: rounded before it is added it would become 256.
  const E4m3Matrix a = rows_of({16, 1}), b = rows_of({16, 1});
  const at::Tensor sum = at::full({16, 16}, -256.0, at::kBFloat16);
  ASSERT_TRUE(products_.add_scaled(sum, a, b));
  EXPECT_TRUE(at::equal(sum, at::ones({16, 16}, at::kBFloat16)));
}

TEST_F(LtProduct, TakesBothScales) {
  E4m3Matrix a = matrix(32, 16, 1), b = matrix(16, 16, 2);
  a.scale = at::full({}, 0.5, at::kFloat);
  b.scale = at::full({}, 8.0, at::kFloat);
  const at::Tensor sum = sum_of(32, 16, at::kFloat), want = added(sum, a, b);
  ASSERT_TRUE(products_.add_scaled(sum, a, b));
  EXPECT_TRUE(at::allclose(sum, want, 1e-6, 1e-6));
}

TEST_F(LtProduct, DeclinesWhatIsNotAligned) {
  const E4m3Matrix a = matrix(32, 32, 1), b = matrix(16, 32, 2);
  expect_declined(sum_of(32, 16, at::kHalf), a, b);
  expect_declined(sum_of(32, 16, at::kDouble), a, b);
  expect_declined(sum_of(32, 32, at::kFloat).slice(1, 0, 16), a, b);
  expect_declined(at::zeros({513}).slice(0, 1, 513).view({32, 16}), a, b);
  expect_declined(sum_of(32, 20, at::kBFloat16), a, matrix(20, 32, 2));
  expect_declined(at::zeros({0, 16}), matrix(32, 32, 1), b);
  const at::Tensor shifted = at::empty({32 * 32 + 8}, at::kByte).slice(0, 8).view({32, 32});
  shifted.copy_(a.codes.view(at::kByte));
  expect_declined(sum_of(32, 16, at::kFloat), {shifted.view(at::kFloat8_e4m3fn), a.scale}, b);
  EXPECT_EQ(stub_->queries, 0);
}

TEST_F(LtProduct, AsksOnceForEachKindOfProduct) {
  const E4m3Matrix a = matrix(32, 32, 1), b = matrix(16, 32, 2);
  const at::Tensor sum = at::zeros({1024}).slice(0, 0, 512).view({32, 16});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(products_.add_scaled(sum, a, b));
  EXPECT_EQ(stub_->queries, 1);
  EXPECT_EQ(stub_->handles, 1);
  // An algorithm that was found for a wider alignment may rely on it, so narrower ones are looked up anew.
  const at::Tensor buffer = at::zeros({2048});
  const auto address = reinterpret_cast<uintptr_t>(buffer.data_ptr()) / 4;
  const int64_t to_wide = static_cast<int64_t>((64 - address % 64) % 64);
  for (const int64_t shift : {0, 4, 8, 0, 4, 8}) {
    const at::Tensor shifted = buffer.slice(0, to_wide + shift, to_wide + shift + 512).view({32, 16});
    ASSERT_TRUE(products_.add_scaled(shifted, a, b));
  }
  EXPECT_GE(stub_->queries, 3);
  EXPECT_LE(stub_->queries, 4);
  EXPECT_EQ(stub_->products, 9);
}

TEST_F(LtProduct, DeclinesWhatTheLibraryRefuses) {
  const E4m3Matrix a = matrix(32, 32, 1), b = matrix(16, 32, 2);
  const at::Tensor sum = sum_of(32, 16, at::kFloat);
  stub_->query_status = lt::kNotSupported;
  expect_declined(sum, a, b);
  expect_declined(sum, a, b);
  EXPECT_EQ(stub_->queries, 1);
  stub_->query_status = 0;
  stub_->product_status = lt::kInvalidValue;
  const E4m3Matrix longer = matrix(48, 32, 1);
  expect_declined(sum_of(48, 16, at::kFloat), longer, b);
  EXPECT_EQ(stub_->queries, 2);
}

TEST_F(LtProduct, FailuresOfTheLibraryEndTheCall) {
  const E4m3Matrix a = matrix(32, 32, 1), b = matrix(16, 32, 2);
  const at::Tensor sum = sum_of(32, 16, at::kFloat);
  constexpr int kExecutionFailed = 13;
  stub_->product_status = kExecutionFailed;
  try {
    products_.add_scaled(sum, a, b);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cublasLtMatmul failed"));
    EXPECT_THAT(error.what(), HasSubstr("something else"));
  }
}

TEST_F(LtProduct, ThreadsShareOneHandle) {
  const E4m3Matrix a = matrix(32, 32, 1), b = matrix(16, 32, 2);
  const at::Tensor want = added(at::zeros({32, 16}), a, b);
  std::vector<at::Tensor> sums(4);
  std::vector<std::thread> threads;
  for (at::Tensor& sum : sums) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        sum = at::zeros({32, 16});
        products_.add_scaled(sum, a, b);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& sum : sums) EXPECT_TRUE(at::allclose(sum, want, 1e-6, 1e-6));
  EXPECT_EQ(stub_->handles, 1);
  EXPECT_EQ(stub_->products, 80);
}

TEST(LtLibrary, IsNotTakenWhereItDoesNotFit) {
  testing::expect_others_refused<LtLibrary>("cublasLtGetVersion", TESSERA_STUB_LT_OLDER,
                                            "12.8.4, not of 13.0.0 or a later 13");
}

}  // namespace
}  // namespace tessera::ops::cuda
