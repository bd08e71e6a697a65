// Tests of casts to e4m3, plain and transposed.
#include <limits>

#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class E4m3Kernel : public KernelTest {};

// Returns the value of a code: a sign, 4 bits of exponent with bias 7, and 3 bits of fraction. All ones is
// NaN, and there is no infinity.
double value_of_code(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 127) == 127) return NAN;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (code & 128) != 0 ? -magnitude : magnitude;
}

// Returns the code nearest to x, the even one of two, by looking at all codes.
uint8_t nearest_code(float x) {
  if (std::isnan(x)) return 0x7f;
  uint8_t best = 0;
  for (int code = 1; code < 127; ++code) {
    const double here = std::abs(value_of_code(static_cast<uint8_t>(code)) - std::abs(x)),
                 least = std::abs(value_of_code(best) - std::abs(x));
    if (here < least || (here == least && code % 2 == 0)) best = static_cast<uint8_t>(code);
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 128 : 0));
}

template <class T>
float scale_of(const Array<T>& x, int64_t n) {
  const CudaKernels& kernels = machine()->kernels();
  const Array<double> space = workspace(kernels.e4m3_scale_workspace(n));
  const Array<float> scale(1);
  EXPECT_EQ(kernels.e4m3_scale(type_of<T>(), x.data(), n, scale.data(), space.data(), nullptr), 0);
  return scale.values()[0];
}

TEST_F(E4m3Kernel, ScalesAreTheAbsmaxOver448) {
  for_types([](auto tag) {
    using T = decltype(tag);
    for (const int64_t n : {1, 7, 8, 33, 1025, 65536, 2 * 65536 + 11}) {
      for (const int64_t offset : {0, 1}) {
        SCOPED_TRACE(std::to_string(n) + " elements from " + std::to_string(offset));
        auto values = random_values<T>(n, 1);
        set_value(-9.5, values[static_cast<size_t>(n / 2)]);  // the largest magnitude
        const Array<T> x(values, offset);
        const float want = 9.5f * static_cast<float>(1.0 / 448.0);
        EXPECT_EQ(scale_of(x, n), want);
        with_small_grids([&] { EXPECT_EQ(scale_of(x, n), want) << "in small grids"; });
        set_value(NAN, values[static_cast<size_t>(n - 1)]);
        EXPECT_TRUE(std::isnan(scale_of(Array<T>(values, offset), n)));
        set_value(INFINITY, values[static_cast<size_t>(n - 1)]);
        EXPECT_EQ(scale_of(Array<T>(values, offset), n), INFINITY);
      }
    }
    EXPECT_EQ(scale_of(Array<T>(std::vector<T>(100, T{})), 100), 1e-12f * static_cast<float>(1.0 / 448.0));
  });
}

TEST_F(E4m3Kernel, RoundsToTheNearestCode) {
  std::vector<float> numbers = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 448.0f, 464.0f, 1e30f, -1e30f, 1e-30f};
  // The inputs are the value of each code, the middle between neighbours, and the numbers just beside both.
  for (int code = 0; code < 126; ++code) {
    const double here = value_of_code(static_cast<uint8_t>(code)),
                 next = value_of_code(static_cast<uint8_t>(code + 1));
    for (const double number : {here, (here + next) / 2}) {
      for (const float beside : {-1e9f, static_cast<float>(number), 1e9f}) {
        const float x = std::nextafter(static_cast<float>(number), beside);
        numbers.push_back(x);
        numbers.push_back(-x);
      }
    }
  }
  const auto n = static_cast<int64_t>(numbers.size()), stride = (n + 15) / 16 * 16;
  const Array<float> x(numbers), scale(std::vector<float>{1.0f});
  const Array<uint8_t> codes(stride);
  ASSERT_EQ(kernels().to_e4m3(Type::F32, x.data(), scale.data(), codes.data(), 1, n, stride, nullptr), 0);
  const std::vector<uint8_t> got = codes.values();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (std::isnan(numbers[i])) {
      EXPECT_EQ(got[i] & 127, 127);
    } else {
      ASSERT_EQ(int{got[i]}, int{nearest_code(numbers[i])}) << numbers[i];
    }
  }
}

TEST_F(E4m3Kernel, CastsMatricesOfAnyShapeAndTheirTransposes) {
  const float scale_value = 3.0f / 448.0f;
  for_types([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t rows : {1, 15, 16, 63, 64, 129}) {
      for (const int64_t width : {1, 8, 16, 24, 63, 64, 65, 200}) {
        for (const int64_t offset : {0, 1}) {
          SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width) + " from " +
                       std::to_string(offset));
          const std::vector<T> values = random_values<T>(rows * width, 3);
          const Array<T> x(values, offset);
          const Array<float> scale(std::vector<float>{scale_value});
          const auto padded = [](int64_t n) { return (n + 15) / 16 * 16; };
          const Array<uint8_t> straight(rows * padded(width)), turned(width * padded(rows));
          const auto cast = [&] {
            ASSERT_EQ(kernels().to_e4m3(type_of<T>(), x.data(), scale.data(), straight.data(), rows, width,
                                        padded(width), nullptr),
                      0);
            ASSERT_EQ(kernels().to_e4m3_transposed(type_of<T>(), x.data(), scale.data(), turned.data(), rows,
                                                   width, padded(rows), nullptr),
                      0);
          };
          offset == 0 ? cast() : with_small_grids(cast);
          const std::vector<uint8_t> by_rows = straight.values(), by_columns = turned.values();
          for (int64_t r = 0; r < padded(rows); ++r) {
            for (int64_t c = 0; c < padded(width); ++c) {
              const bool is_in = r < rows && c < width;
              const int want =
                  is_in ? nearest_code(
                              static_cast<float>(value_of(values[static_cast<size_t>(r * width + c)])) *
                              (1.0f / scale_value))
                        : 0;
              const auto code = [](const std::vector<uint8_t>& codes, int64_t i) {
                return int{codes[static_cast<size_t>(i)]};
              };
              if (r < rows) {
                ASSERT_EQ(code(by_rows, r * padded(width) + c), want) << r << ' ' << c;
              }
              if (c < width) {
                ASSERT_EQ(code(by_columns, c * padded(rows) + r), want) << r << ' ' << c;
              }
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::ops::cuda
