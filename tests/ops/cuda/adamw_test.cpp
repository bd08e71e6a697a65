#include <algorithm>
#include <type_traits>

#include "tessera/core/cpu_features.h"
#include "tessera/ops/kernels/kernels.h"

#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class AdamWKernel : public KernelTest {};

AdamWFactors factors_of(int64_t step) {
  const auto t = static_cast<double>(step);
  return {0.25,
          0.9,
          0.999,
          1e-8,
          1 - 0.03 * 0.1,
          0.03 / (1 - std::pow(0.9, t)),
          1 / std::sqrt(1 - std::pow(0.999, t))};
}

// Returns the factors in the form that the host's kernel takes.
kernels::AdamWFactors on_host(const AdamWFactors& f) {
  return {f.gradient_scale, f.beta1, f.beta2, f.epsilon, f.decay, f.step_size, f.square_correction};
}

template <class V, class G, class S>
struct Case {
  std::vector<V> value;
  std::vector<G> gradient;
  std::vector<S> mean, square;

  explicit Case(int64_t n)
      : value(random_values<V>(n, 1)), gradient(random_values<G>(n, 2, 3.0)), mean(random_values<S>(n, 3)) {
    for (const S& x : random_values<S>(n, 4)) {
      S squared;
      set_value(value_of(x) * value_of(x), squared);
      square.push_back(squared);
    }
  }
};

template <class V, class S>
struct Updated {
  std::vector<V> value;
  std::vector<S> mean, square;
};

template <class V, class G, class S>
Updated<V, S> run(const Case<V, G, S>& in, const AdamWFactors& factors, int64_t offset,
                  const AdamWRounding* rounding = nullptr, float clip = 1.0f) {
  const auto n = static_cast<int64_t>(in.value.size());
  const Array<V> value(in.value, offset);
  const Array<G> gradient(in.gradient, offset);
  const Array<S> mean(in.mean, offset), square(in.square, offset);
  const Array<float> scale(std::vector<float>{clip});
  const AdamWTensors tensors = {value.data(), gradient.data(), mean.data(),  square.data(),
                                type_of<V>(), type_of<G>(),    type_of<S>(), n};
  EXPECT_EQ(machine()->kernels().adamw(&tensors, &factors, clip == 1.0f ? nullptr : scale.data(), rounding,
                                       nullptr),
            0);
  return {value.values(), mean.values(), square.values()};
}

// Result of an update in float32: each operation is rounded once, and products and sums are fused where a
// device fuses them.
struct Exact {
  float value, mean, square;
};
Exact update(float value, float gradient, float mean, float square, const AdamWFactors& f, float clip) {
  const float g = gradient * (static_cast<float>(f.gradient_scale) * clip);
  const float m = std::fmaf(static_cast<float>(1.0 - f.beta1), g - mean, mean);
  const float v = std::fmaf(static_cast<float>(f.beta2), square, static_cast<float>(1.0 - f.beta2) * (g * g));
  const float down =
      std::fmaf(std::sqrt(v), static_cast<float>(f.square_correction), static_cast<float>(f.epsilon));
  const float step = static_cast<float>(f.step_size) * m / down;
  return {std::fmaf(static_cast<float>(f.decay), value, -step), m, v};
}

// Returns the random bits of an element's number, made of the host's random numbers as the contract says.
uint16_t noise_of(const CounterRng& rng, uint64_t number) {
  const uint32_t word = rng.words(number / 8)[number % 8 / 2];
  return static_cast<uint16_t>(number % 2 == 0 ? word & 0xffff : word >> 16);
}

// Returns x as bf16 under stochastic rounding.
Bf16Bits rounded(float x, const CounterRng& rng, uint64_t number) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return {static_cast<uint16_t>((bits + noise_of(rng, number)) >> 16)};
}

RandomKey key_of(const CounterRng& rng, uint64_t step) { return {{rng.key()[0], rng.key()[1]}, step}; }

// The numbers of a tile's elements: rows of `width` elements, 0 = one row.
struct Numbers {
  uint64_t first, width, row_stride;

  uint64_t width_of(int64_t n) const {
    return width > 0 ? width : std::max<uint64_t>(1, static_cast<uint64_t>(n));
  }
  uint64_t operator()(size_t i, int64_t n) const {
    return first + i / width_of(n) * row_stride + i % width_of(n);
  }
};

// Cases with whole groups of eight numbers, with groups that begin elsewhere or lie in two rows, and with
// large numbers.
constexpr Numbers kNumbers[] = {{0, 0, 0},          {8, 0, 0},   {5, 0, 0},
                                {0xfffffff0, 0, 0}, {16, 8, 24}, {4, 12, 20},
                                {8, 8, 12},         {24, 7, 8},  {(uint64_t{1} << 35) + 3, 5, 11}};

template <class V, class G, class S>
void check_bits() {
  constexpr uint64_t kStep = 0x123456789abcULL;
  const CounterRng of_value(7, 1, kStep), of_mean(7, 2, kStep), of_square(7, 3, kStep);
  for (const int64_t n : edge_lengths()) {
    const Case<V, G, S> in(n);
    const AdamWFactors factors = factors_of(7);
    const auto check = [&](int64_t offset, const Numbers* numbers) {
      SCOPED_TRACE(std::to_string(n) + " elements" +
                   (numbers == nullptr ? ""
                                       : ", rounded by chance, first " + std::to_string(numbers->first) +
                                             ", rows of " + std::to_string(numbers->width)));
      AdamWRounding rounding = {
          key_of(of_value, kStep), key_of(of_mean, kStep), key_of(of_square, kStep), 0, 1, 0};
      if (numbers != nullptr) {
        rounding.first = numbers->first;
        rounding.width = numbers->width_of(n);
        rounding.row_stride = numbers->row_stride;
      }
      const float clip = numbers != nullptr ? 0.37f : 1.0f;
      const Updated<V, S> got = run(in, factors, offset, numbers != nullptr ? &rounding : nullptr, clip);
      std::vector<V> value(in.value.size());
      std::vector<S> mean(in.value.size()), square(in.value.size());
      for (size_t i = 0; i < in.value.size(); ++i) {
        const Exact exact =
            update(static_cast<float>(value_of(in.value[i])), static_cast<float>(value_of(in.gradient[i])),
                   static_cast<float>(value_of(in.mean[i])), static_cast<float>(value_of(in.square[i])),
                   factors, clip);
        const auto put = [&](float x, auto& to, const CounterRng& rng) {
          set_value(x, to);
          if constexpr (std::is_same_v<decltype(to), Bf16Bits&>) {
            if (numbers != nullptr) to = rounded(x, rng, (*numbers)(i, n));
          }
        };
        put(exact.value, value[i], of_value);
        put(exact.mean, mean[i], of_mean);
        put(exact.square, square[i], of_square);
      }
      expect_same_bits(got.mean, mean, "mean");
      expect_same_bits(got.square, square, "square");
      expect_same_bits(got.value, value, "value");
    };
    for (const int64_t offset : {0, 1}) check(offset, nullptr);
    for (const Numbers& numbers : kNumbers) check(0, &numbers);
    check(1, &kNumbers[0]);
  }
}

TEST_F(AdamWKernel, GivesTheBitsOfItsContractInEveryType) {
  check_bits<float, float, float>();
  check_bits<float, Bf16Bits, float>();
  check_bits<float, Bf16Bits, Bf16Bits>();
  check_bits<Bf16Bits, Bf16Bits, Bf16Bits>();
  check_bits<Bf16Bits, float, float>();
  check_bits<Bf16Bits, Bf16Bits, float>();
  check_bits<Bf16Bits, float, Bf16Bits>();
  check_bits<float, float, Bf16Bits>();
}

// Tells whether the host's kernel gives the device's bits. Its compiler decides which products and sums are
// fused: GCC 12 fuses the same ones as the device's compiler, if the processor can.
bool has_same_bits() {
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ == 12
  return usable_isa() >= Isa::Avx2;
#else
  return false;
#endif
}

// The type that the host's kernel has for T.
template <class T>
using OnHost = std::conditional_t<std::is_same_v<T, Bf16Bits>, kernels::Bf16, T>;

template <class V, class G, class S>
void check_against_host(const Numbers* numbers = nullptr) {
  constexpr int64_t kN = 5000;
  Case<V, G, S> in(kN);
  for (uint64_t step = 1; step <= 3; ++step) {
    const CounterRng of_value(7, 1, step), of_mean(7, 2, step), of_square(7, 3, step);
    std::vector<uint16_t> value_noise, mean_noise, square_noise;
    AdamWRounding rounding = {
        key_of(of_value, step), key_of(of_mean, step), key_of(of_square, step), 0, 1, 0};
    if (numbers != nullptr) {
      rounding.first = numbers->first;
      rounding.width = numbers->width_of(kN);
      rounding.row_stride = numbers->row_stride;
      for (size_t i = 0; i < kN; ++i) {
        value_noise.push_back(noise_of(of_value, (*numbers)(i, kN)));
        mean_noise.push_back(noise_of(of_mean, (*numbers)(i, kN)));
        square_noise.push_back(noise_of(of_square, (*numbers)(i, kN)));
      }
    }
    const auto factors = factors_of(static_cast<int64_t>(step));
    const Updated<V, S> got = run(in, factors, 0, numbers != nullptr ? &rounding : nullptr);
    const kernels::AdamWNoise noise = {value_noise.data(), mean_noise.data(), square_noise.data()};
    kernels::adamw(
        reinterpret_cast<OnHost<V>*>(in.value.data()), reinterpret_cast<const OnHost<G>*>(in.gradient.data()),
        reinterpret_cast<OnHost<S>*>(in.mean.data()), reinterpret_cast<OnHost<S>*>(in.square.data()), kN,
        on_host(factors), numbers != nullptr ? &noise : nullptr);
    const auto tolerance = [](size_t size) { return has_same_bits() ? 0.0 : size == 4 ? 4e-7 : 8e-3; };
    expect_near(got.mean, doubles(in.mean), "mean", tolerance(sizeof(S)));
    expect_near(got.square, doubles(in.square), "square", tolerance(sizeof(S)));
    expect_near(got.value, doubles(in.value), "value", tolerance(sizeof(V)));
    in.value = got.value, in.mean = got.mean, in.square = got.square;
  }
}

TEST_F(AdamWKernel, FollowsTheCpu) {
  check_against_host<float, float, float>();
  check_against_host<float, Bf16Bits, float>();
  check_against_host<Bf16Bits, Bf16Bits, Bf16Bits>();
  check_against_host<float, Bf16Bits, Bf16Bits>();
}

TEST_F(AdamWKernel, FollowsTheCpuWhereItRoundsByChance) {
  for (const Numbers& numbers : kNumbers) {
    SCOPED_TRACE("first " + std::to_string(numbers.first) + ", rows of " + std::to_string(numbers.width));
    check_against_host<float, float, Bf16Bits>(&numbers);
    check_against_host<float, Bf16Bits, Bf16Bits>(&numbers);
    check_against_host<Bf16Bits, Bf16Bits, Bf16Bits>(&numbers);
  }
}

TEST_F(AdamWKernel, AFactorThatIsNotANumberLeavesEverything) {
  const Case<float, Bf16Bits, float> in(1003);
  for (const int64_t offset : {0, 1}) {
    const auto got = run(in, factors_of(1), offset, nullptr, NAN);
    expect_same_bits(got.value, in.value, "value");
    expect_same_bits(got.mean, in.mean, "mean");
    expect_same_bits(got.square, in.square, "square");
  }
}

TEST_F(AdamWKernel, StochasticRoundingIsRightOnAverage) {
  // Gradients are zero, so that decay alone moves the value: to three eighths of the way between two bf16
  // numbers.
  constexpr int64_t kN = 40000;
  Case<Bf16Bits, Bf16Bits, float> in(kN);
  for (auto& x : in.value) set_value(1.0, x);
  for (auto& x : in.gradient) set_value(0.0, x);
  for (auto& x : in.mean) x = 0.0f;
  AdamWFactors factors = factors_of(1);
  factors.decay = 1.0 + 3.0 / 8.0 * 0x1p-7;
  const CounterRng rng(11, 5, 2);
  const AdamWRounding rounding = {key_of(rng, 2), key_of(rng, 2), key_of(rng, 2), 0, kN, 0};
  const auto got = run(in, factors, 0, &rounding);
  double ups = 0;
  for (const Bf16Bits x : got.value) {
    ASSERT_TRUE(x.bits == 0x3f80 || x.bits == 0x3f81);
    ups += x.bits == 0x3f81 ? 1 : 0;
  }
  EXPECT_NEAR(ups / kN, 3.0 / 8.0, 0.01);
}

TEST_F(AdamWKernel, InfinityAndNotANumberStayUnderStochasticRounding) {
  Case<Bf16Bits, Bf16Bits, float> in(8);
  set_value(INFINITY, in.value[0]);
  set_value(-INFINITY, in.value[1]);
  set_value(NAN, in.value[2]);
  set_value(NAN, in.gradient[3]);
  const CounterRng rng(11, 5, 2);
  const AdamWRounding rounding = {key_of(rng, 2), key_of(rng, 2), key_of(rng, 2), 0, 8, 0};
  const auto got = run(in, factors_of(1), 0, &rounding);
  EXPECT_EQ(value_of(got.value[0]), INFINITY);
  EXPECT_EQ(value_of(got.value[1]), -INFINITY);
  EXPECT_TRUE(std::isnan(value_of(got.value[2])));
  EXPECT_TRUE(std::isnan(value_of(got.value[3])));
  EXPECT_TRUE(std::isnan(got.mean[3]));
  EXPECT_TRUE(std::isfinite(value_of(got.value[4])));
}

}  // namespace
}  // namespace tessera::ops::cuda
