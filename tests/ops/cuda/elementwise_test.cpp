// Tests of the kernels that work element by element: activations, rotary embedding, casts.
#include <limits>

#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class ElementwiseKernel : public KernelTest {};

constexpr Activate kAll[] = {Activate::Silu, Activate::Gelu, Activate::GeluTanh};

double function_of(Activate f, double z) {
  const double u = std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z);
  switch (f) {
    case Activate::Silu: return z / (1 + std::exp(-z));
    case Activate::Gelu: return z * (1 + std::erf(z / std::sqrt(2.0))) / 2;
    case Activate::GeluTanh: return z * (1 + std::tanh(u)) / 2;
  }
  return NAN;
}

double slope_of(Activate f, double z) {
  const double s = 1 / (1 + std::exp(-z));
  const double u = std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z), t = std::tanh(u);
  switch (f) {
    case Activate::Silu: return s + z * s * (1 - s);
    case Activate::Gelu:
      return (1 + std::erf(z / std::sqrt(2.0))) / 2 + z * std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    case Activate::GeluTanh:
      return (1 + t) / 2 + z * (1 - t * t) / 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * z * z);
  }
  return NAN;
}

template <class T>
struct Activated {
  std::vector<T> y, grad_gate, grad_up;
};

template <class T>
Activated<T> run(Activate f, const std::vector<T>& gate_in, const std::vector<T>& up_in,
                 const std::vector<T>& grad_in, int64_t offset, bool is_gated) {
  const auto n = static_cast<int64_t>(gate_in.size());
  const CudaKernels& kernels = machine()->kernels();
  const Array<T> gate(gate_in, offset), up(up_in, offset), grad(grad_in, offset);
  const Array<T> y(n, offset), grad_gate(n, offset), grad_up(n, offset);
  const T* factor = is_gated ? up.data() : nullptr;
  EXPECT_EQ(kernels.activate(type_of<T>(), f, gate.data(), factor, y.data(), n, nullptr, nullptr), 0);
  EXPECT_EQ(kernels.activate_backward(type_of<T>(), f, grad.data(), gate.data(), factor, grad_gate.data(),
                                      is_gated ? grad_up.data() : nullptr, n, nullptr, nullptr, nullptr),
            0);
  return {y.values(), grad_gate.values(), is_gated ? grad_up.values() : std::vector<T>()};
}

TEST_F(ElementwiseKernel, ActivationsAreTheFormulas) {
  for_types([](auto tag) {
    using T = decltype(tag);
    for (const Activate f : kAll) {
      for (const bool is_gated : {true, false}) {
        for (const int64_t n : edge_lengths()) {
          for (const int64_t offset : {0, 1}) {
            SCOPED_TRACE(std::to_string(static_cast<int>(f)) + (is_gated ? " gated, " : ", ") +
                         std::to_string(n) + " elements from " + std::to_string(offset));
            const auto gate = random_values<T>(n, 1, 3.0), up = random_values<T>(n, 2),
                       dy = random_values<T>(n, 3);
            const Activated<T> got = run(f, gate, up, dy, offset, is_gated);
            std::vector<double> y, grad_gate, grad_up;
            for (size_t i = 0; i < gate.size(); ++i) {
              const double z = value_of(gate[i]), factor = is_gated ? value_of(up[i]) : 1.0,
                           g = value_of(dy[i]);
              y.push_back(function_of(f, z) * factor);
              grad_gate.push_back(g * factor * slope_of(f, z));
              if (is_gated) grad_up.push_back(g * function_of(f, z));
            }
            expect_near(got.y, y, "y", (is_gated ? 2 : 1) * tolerance_of<T>());
            expect_near(got.grad_gate, grad_gate, "grad_gate");
            expect_near(got.grad_up, grad_up, "grad_up");
          }
        }
      }
    }
  });
}

TEST_F(ElementwiseKernel, ActivationsKeepNotANumberAndHoldAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gate = {NAN, infinity, -infinity, 3e38f, -3e38f, 100.0f, -100.0f, -87.5f, 0.0f};
  const std::vector<float> ones(gate.size(), 1.0f);
  for (const Activate f : kAll) {
    SCOPED_TRACE(static_cast<int>(f));
    const Activated<float> got = run(f, gate, ones, ones, 0, true);
    EXPECT_TRUE(std::isnan(got.y[0]));
    EXPECT_TRUE(std::isnan(got.grad_gate[0]));
    EXPECT_EQ(got.y[1], infinity);
    EXPECT_EQ(got.y[3], 3e38f);
    EXPECT_NEAR(got.y[5], 100.0f, 1e-4f);
    EXPECT_NEAR(got.y[6], 0.0f, 1e-30f);
    EXPECT_NEAR(got.y[7], 0.0f, 1e-30f);
    EXPECT_EQ(got.y[8], 0.0f);
    EXPECT_NEAR(got.grad_gate[5], 1.0f, 1e-6f);
    EXPECT_NEAR(got.grad_gate[6], 0.0f, 1e-30f);
    EXPECT_FLOAT_EQ(got.grad_gate[8], 0.5f);
  }
}

TEST_F(ElementwiseKernel, ActivationsInPlaceAndWithOneGradientAlone) {
  constexpr int64_t kN = 1029;
  const auto gate = random_values<Bf16Bits>(kN, 1), up = random_values<Bf16Bits>(kN, 2),
             dy = random_values<Bf16Bits>(kN, 3);
  const auto want = run(Activate::Silu, gate, up, dy, 0, true);
  const Array<Bf16Bits> y(gate), factor(up), grad(dy), z(gate), other(kN);
  ASSERT_EQ(
      kernels().activate(Type::BF16, Activate::Silu, y.data(), factor.data(), y.data(), kN, nullptr, nullptr),
      0);
  expect_same_bits(y.values(), want.y, "y over gate");
  ASSERT_EQ(kernels().activate_backward(Type::BF16, Activate::Silu, grad.data(), z.data(), factor.data(),
                                        nullptr, other.data(), kN, nullptr, nullptr, nullptr),
            0);
  expect_same_bits(other.values(), want.grad_up, "grad_up alone");
  ASSERT_EQ(kernels().activate_backward(Type::BF16, Activate::Silu, grad.data(), z.data(), factor.data(),
                                        grad.data(), factor.data(), kN, nullptr, nullptr, nullptr),
            0);
  expect_same_bits(grad.values(), want.grad_gate, "grad_gate over grad_y");
  expect_same_bits(factor.values(), want.grad_up, "grad_up over up");
  ASSERT_EQ(kernels().activate_backward(Type::BF16, Activate::Silu, grad.data(), z.data(), factor.data(),
                                        nullptr, nullptr, kN, nullptr, nullptr, nullptr),
            0);
  ASSERT_NE(kernels().activate(Type::BF16, static_cast<Activate>(9), y.data(), nullptr, y.data(), kN, nullptr,
                               nullptr),
            0);
  ASSERT_NE(kernels().activate(Type::F16, Activate::Silu, y.data(), nullptr, y.data(), kN, nullptr, nullptr),
            0);
}

TEST_F(ElementwiseKernel, GridsThatAreTooSmallChangeNothing) {
  constexpr int64_t kN = 5003;
  const auto gate = random_values<Bf16Bits>(kN, 1), up = random_values<Bf16Bits>(kN, 2),
             dy = random_values<Bf16Bits>(kN, 3);
  const auto want = run(Activate::Silu, gate, up, dy, 0, true);
  with_small_grids([&] {
    for (const int64_t offset : {0, 1}) {
      const auto got = run(Activate::Silu, gate, up, dy, offset, true);
      expect_same_bits(got.y, want.y, "y");
      expect_same_bits(got.grad_gate, want.grad_gate, "grad_gate");
    }
  });
}

TEST_F(ElementwiseKernel, RopeIsTheFormulaAndTurnsBack) {
  struct Shape {
    int64_t tokens, heads, half, offset;
  };
  for_types([](auto tag) {
    using T = decltype(tag);
    for (const Shape& s : {Shape{0, 2, 32, 0}, Shape{1, 1, 1, 0}, Shape{5, 3, 32, 0}, Shape{3, 2, 48, 0},
                           Shape{7, 14, 64, 0}, Shape{4, 2, 5, 0}, Shape{3, 2, 32, 1}, Shape{3, 0, 8, 0}}) {
      SCOPED_TRACE(std::to_string(s.tokens) + ", " + std::to_string(s.heads) + ", " + std::to_string(s.half));
      const int64_t n = s.tokens * s.heads * 2 * s.half;
      const auto x = random_values<T>(n, 1);
      std::vector<float> cos, sin;
      for (const float angle : random_values<float>(s.tokens * s.half, 2)) {
        cos.push_back(std::cos(angle));
        sin.push_back(std::sin(angle));
      }
      std::vector<double> want(static_cast<size_t>(n)), back = want;
      for (int64_t head = 0; head < s.tokens * s.heads; ++head) {
        for (int64_t i = 0; i < s.half; ++i) {
          const auto a = static_cast<size_t>(head * 2 * s.half + i), b = a + static_cast<size_t>(s.half);
          const auto angle = static_cast<size_t>(head / s.heads * s.half + i);
          const double c = cos[angle], t = sin[angle], first = value_of(x[a]), second = value_of(x[b]);
          want[a] = first * c - second * t;
          want[b] = second * c + first * t;
          back[a] = first * c + second * t;
          back[b] = second * c - first * t;
        }
      }
      const Array<T> from(x, s.offset), y(n, s.offset), in_place(x, s.offset);
      const Array<float> cosines(cos), sines(sin);
      const auto rope = [&](const T* source, int direction, T* to) {
        ASSERT_EQ(kernels().rope(type_of<T>(), source, cosines.data(), sines.data(), direction, to, s.tokens,
                                 s.heads, s.half, nullptr, nullptr),
                  0);
      };
      rope(from.data(), 1, y.data());
      expect_near(y.values(), want, "y");
      rope(in_place.data(), 1, in_place.data());
      expect_same_bits(in_place.values(), y.values(), "in place");
      rope(from.data(), -1, y.data());
      expect_near(y.values(), back, "back");
    }
  });
}

template <class From, class To>
void check_cast() {
  for (const int64_t n : edge_lengths()) {
    for (const int64_t offset : {0, 1}) {
      auto from = random_values<From>(n, 5, 100.0);
      const double ends[] = {NAN,        INFINITY, -INFINITY, 0.0,  -0.0,  1.00390625,
                             1.01171875, 65520.0,  1e-7,      3e-8, 3.4e38};
      for (size_t i = 0; i < std::min(from.size(), std::size(ends)); ++i) set_value(ends[i], from[i]);
      std::vector<To> want(from.size());
      for (size_t i = 0; i < from.size(); ++i) set_value(value_of(from[i]), want[i]);
      const Array<From> source(from, offset);
      const Array<To> to(n, offset);
      ASSERT_EQ(
          machine()->kernels().cast(type_of<From>(), source.data(), type_of<To>(), to.data(), n, nullptr), 0);
      const std::vector<To> got = to.values();
      for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(value_of(from[i]))) {
          ASSERT_TRUE(std::isnan(value_of(got[i])));
        } else {
          ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(To)), 0)
              << value_of(from[i]) << " became " << value_of(got[i]);
        }
      }
    }
  }
}

TEST_F(ElementwiseKernel, CastsRoundToNearestEven) {
  check_cast<float, Bf16Bits>();
  check_cast<float, HalfBits>();
  check_cast<Bf16Bits, float>();
  check_cast<Bf16Bits, HalfBits>();
  check_cast<HalfBits, float>();
  check_cast<HalfBits, Bf16Bits>();
  check_cast<float, float>();
  const Array<double> x(2);
  EXPECT_NE(kernels().cast(Type::F64, x.data(), Type::F32, x.data(), 1, nullptr), 0);
}

TEST_F(ElementwiseKernel, EveryHalfIsReadAndWritten) {
  std::vector<HalfBits> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  const auto n = static_cast<int64_t>(all.size());
  const Array<HalfBits> halves(all), back(n);
  const Array<float> floats(n);
  ASSERT_EQ(kernels().cast(Type::F16, halves.data(), Type::F32, floats.data(), n, nullptr), 0);
  ASSERT_EQ(kernels().cast(Type::F32, floats.data(), Type::F16, back.data(), n, nullptr), 0);
  const std::vector<float> values = floats.values();
  const std::vector<HalfBits> again = back.values();
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(value_of(all[i]))) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
      ASSERT_TRUE(std::isnan(value_of(again[i]))) << i;
    } else {
      ASSERT_EQ(values[i], value_of(all[i])) << i;
      ASSERT_EQ(again[i].bits, all[i].bits) << i;
    }
  }
}

}  // namespace
}  // namespace tessera::ops::cuda
