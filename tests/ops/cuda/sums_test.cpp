#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class SumsKernel : public KernelTest {};

template <class T>
double sum_of_squares(const std::vector<T>& values, int64_t offset) {
  const auto n = static_cast<int64_t>(values.size());
  const CudaKernels& kernels = machine()->kernels();
  const Array<T> x(values, offset);
  const Array<double> space = workspace(kernels.sum_of_squares_workspace(n)), sum(1);
  EXPECT_EQ(kernels.sum_of_squares(type_of<T>(), x.data(), n, sum.data(), space.data(), nullptr), 0);
  return sum.values()[0];
}

template <class T>
void check(std::vector<int64_t> lengths) {
  for (const int64_t n : lengths) {
    for (const int64_t offset : {0, 1}) {
      SCOPED_TRACE(std::to_string(n) + " elements from " + std::to_string(offset));
      const auto values = random_values<T>(n, 1);
      long double want = 0;
      for (const T& x : values) want += static_cast<long double>(value_of(x)) * value_of(x);
      const double got = sum_of_squares(values, offset);
      EXPECT_NEAR(got, static_cast<double>(want), 1e-12 * static_cast<double>(want));
      if (n <= 65536) continue;
      EXPECT_EQ(sum_of_squares(values, offset), got) << "in another order of threads";
      with_small_grids([&] { EXPECT_EQ(sum_of_squares(values, offset), got) << "in small grids"; });
    }
  }
}

TEST_F(SumsKernel, SumsOfSquaresOfEveryLengthAndType) {
  std::vector<int64_t> lengths = edge_lengths();
  lengths.insert(lengths.end(), {65535, 65536, 2 * 65536 + 11});
  check<float>(lengths);
  check<Bf16Bits>(lengths);
  check<double>(lengths);
}

TEST_F(SumsKernel, ASumOfSquaresKeepsWhatIsNotFinite) {
  auto values = random_values<float>(70000, 1);
  values[69999] = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares(values, 0)));
  values[69999] = -INFINITY;
  EXPECT_EQ(sum_of_squares(values, 0), INFINITY);
  values[69999] = 3e38f;  // its square overflows float32
  EXPECT_NEAR(sum_of_squares(values, 0), 9e76, 1e71);
}

TEST_F(SumsKernel, SumsOfDoubles) {
  for (const int64_t n : edge_lengths()) {
    const auto values = random_values<double>(n, 2);
    double want = 0;
    for (const double x : values) want += x;
    const Array<double> x(values), sum(1);
    ASSERT_EQ(kernels().sum(x.data(), n, sum.data(), nullptr), 0);
    EXPECT_NEAR(sum.values()[0], want, 1e-11) << n;
  }
}

}  // namespace
}  // namespace tessera::ops::cuda
