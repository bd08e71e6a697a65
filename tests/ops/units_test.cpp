// Tests every kind of unit that this machine can run, not only the best one; tile units run by emulation
// (emulated_tiles.cpp).
#include "tessera/ops/kernels/units.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/ops/kernels/packed_gemm.h"
#include "tessera/ops/kernels/unit_code.h"

#include "tests/testing/random.h"
#include "tests/testing/skip.h"

namespace tessera::ops::kernels {
namespace {

#if defined(TESSERA_UNIT_CODE)

template <class T>
std::vector<const Units<T>*> runnable_units();
template <>
std::vector<const Units<float>*> runnable_units() {
  std::vector<const Units<float>*> found;
  const CpuFeatures cpu = detect_cpu_features();
  if (best_isa() >= Isa::Avx2) found.push_back(&avx2::float_units());
  if (best_isa() >= Isa::Avx512) found.push_back(&avx512::float_units());
  if (best_isa() >= Isa::Avx512 && cpu.avx512_bf16) found.push_back(&avx512::float_units_with_tiles());
  return found;
}
template <>
std::vector<const Units<Bf16>*> runnable_units() {
  std::vector<const Units<Bf16>*> found;
  if (best_isa() >= Isa::Avx2) found.push_back(&avx2::widened_units());
  if (best_isa() >= Isa::Avx512) found.push_back(&avx512::widened_units());
  if (best_isa() >= Isa::Avx512 && detect_cpu_features().avx512_bf16) {
    found.push_back(&avx512::bf16_units());
    found.push_back(&avx512::bf16_units_with_tiles());
  } else {
    [[maybe_unused]] static const bool is_told = [] {
      tessera::testing::report_skip(tessera::testing::skip::kUnits, "Units (bfloat16)");
      return true;
    }();
  }
  return found;
}

class Random : public tessera::testing::Random {
 public:
  bool one_in(int64_t n) { return in(1, n) == 1; }
  // The values have few bits in every type, so that the order of sums changes nothing.
  float value() { return static_cast<float>(in(-16, 16)) / 8.0f; }
};

template <class T>
T stored(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_bf16(x);
  }
}
float widened(float x) { return x; }
float widened(Bf16 x) { return to_float(x); }

// An operand whose memory ends with its last element; NaN lies between its lines.
template <class T>
struct Matrix {
  Matrix(Random& random, int64_t lines, int64_t depth) : is_depth_contiguous(random.one_in(2)) {
    const int64_t inner = is_depth_contiguous ? depth : lines, outer = is_depth_contiguous ? lines : depth;
    stride = inner + random.in(0, 5);
    const int64_t size = (outer - 1) * stride + inner;
    data.reset(new T[static_cast<size_t>(size)]);
    for (int64_t i = 0; i < size; ++i) data[i] = stored<T>(i % stride < inner ? random.value() : NAN);
  }
  float at(int64_t line, int64_t d) const {
    return widened(data[is_depth_contiguous ? line * stride + d : d * stride + line]);
  }
  Lines<T> as_lines() const { return {data.get(), stride, is_depth_contiguous}; }

  bool is_depth_contiguous;
  int64_t stride;
  std::unique_ptr<T[]> data;
};

// Expects C = A B + A' B' + beta C, with random sizes, to equal the plain sum.
template <class T, class Out>
void expect_product(Random& random, const Units<T>& units) {
  const auto size = [&](int64_t small, int64_t large) {
    return random.one_in(6) ? random.in(small, large) : random.in(1, small);
  };
  const int64_t m = size(40, 140), n = size(40, 140), k = size(70, 1000), more = random.in(0, 20);
  const float beta = random.one_in(2) ? 0.0f : 0.5f;
  SCOPED_TRACE(::testing::Message() << name_of(units.isa) << " " << m << " x " << n << " x " << k << " + "
                                    << more << ", beta " << beta << ", " << sizeof(T) << " to "
                                    << sizeof(Out));
  const Matrix<T> a(random, m, k), b(random, n, k), more_a(random, m, more + 1), more_b(random, n, more + 1);
  const int64_t ldc = n + random.in(0, 3);
  std::vector<Out> c(static_cast<size_t>((m - 1) * ldc + n), stored<Out>(NAN));
  std::vector<double> want;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (int64_t d = 0; d < k; ++d) sum += a.at(row, d) * b.at(column, d);
      for (int64_t d = 0; d < more; ++d) sum += more_a.at(row, d) * more_b.at(column, d);
      Out& to = c[row * ldc + column];
      if (beta != 0) sum += beta * widened(to = stored<Out>(random.value()));
      want.push_back(sum);
    }
  }
  packed_gemm(units, m, n, {a.as_lines(), b.as_lines(), k},
              more > 0 ? Factors<T>{more_a.as_lines(), more_b.as_lines(), more} : Factors<T>(), beta,
              c.data(), ldc);
  const double digits = std::is_same_v<Out, float> ? 1e-6 : 4e-3;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < ldc && row * ldc + column < static_cast<int64_t>(c.size()); ++column) {
      const double got = widened(c[row * ldc + column]);
      if (column >= n) {
        ASSERT_TRUE(std::isnan(got)) << "written beside the result";
      } else {
        const double expected = want[row * n + column];
        ASSERT_NEAR(got, expected, digits * (std::abs(expected) + 1)) << row << ", " << column;
      }
    }
  }
}

TEST(Units, MultiplyWhatIsPacked) {
  Random random;
  for (int round = 0; round < 60; ++round) {
    for (const auto* units : runnable_units<float>()) expect_product<float, float>(random, *units);
    for (const auto* units : runnable_units<Bf16>()) {
      expect_product<Bf16, float>(random, *units);
      expect_product<Bf16, Bf16>(random, *units);
    }
    if (HasFatalFailure()) return;
  }
}

// The results that attention makes of scores, through products with what it packed.
struct Attended {
  std::vector<float> out, of_keys, of_values, of_queries, factors, log_sum;
};

template <class T>
Attended attend(const Units<T>& units, const std::vector<float>& scores, const std::vector<float>& gradients,
                const std::vector<T>& values, const KeyBand& band, const float* factors) {
  constexpr int64_t kSquare = kPanelLines * kPanelLines, kPanels = 2;
  const auto memory = [&](int64_t blocks) {
    return std::unique_ptr<char, decltype(&std::free)>(
        static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(blocks * units.block_bytes))),
        &std::free);
  };
  const UnitSession session(units.isa);
  Attended result{std::vector<float>(kSquare), std::vector<float>(kSquare), std::vector<float>(kSquare),
                  std::vector<float>(kSquare), std::vector<float>(32),      std::vector<float>(32)};
  const auto numerators = memory(kPanels), v = memory(kPanels);
  units.pack(Side::Left, {values.data(), 64, true}, 32, 64, v.get(), kPanels * units.block_bytes);
  SoftmaxState state;
  std::vector<float> rescale(32);
  for (const bool is_first : {true, false}) {
    units.softmax(scores.data(), factors, kPanels, band, is_first ? 0.125f : 0.3f, is_first, state,
                  rescale.data(), numerators.get());
    if (!is_first) units.scale_columns(result.out.data(), rescale.data(), kPanelLines);
    units.multiply_panel(v.get(), numerators.get(), kPanels, !is_first, result.out.data(), kPanelLines);
  }
  units.softmax_end(state, result.factors.data(), result.log_sum.data());
  const auto p = memory(1), g = memory(1), g_right = memory(1), left = memory(1), right = memory(1);
  const std::vector<float> delta(32, 0.3f);
  units.softmax_backward(scores.data(), gradients.data(), factors, band, 0.125f, result.log_sum.data(),
                         delta.data(), p.get(), g.get(), g_right.get());
  units.pack(Side::Left, {values.data(), 64, true}, 32, 32, left.get(), units.block_bytes);
  units.pack(Side::Right, {values.data(), 64, false}, 32, 32, right.get(), units.block_bytes);
  units.multiply_panel(p.get(), right.get(), 1, false, result.of_values.data(), kPanelLines);
  units.multiply_panel(g.get(), right.get(), 1, false, result.of_keys.data(), kPanelLines);
  units.multiply_panel(left.get(), g_right.get(), 1, false, result.of_queries.data(), kPanelLines);
  return result;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

template <class T>
void expect_same_attention(Random& random, double tolerance, const Units<float>& reference) {
  std::vector<float> scores, gradients, values, dropped;
  for (int i = 0; i < 2048; ++i) {
    dropped.push_back(random.in(0, 3) == 0 ? 0.0f : 1.25f);
    scores.push_back(random.value() * 3);
    gradients.push_back(random.value());
    values.push_back(random.value());
  }
  std::vector<T> own;
  for (const float value : values) own.push_back(stored<T>(value));
  // The bands see all keys, causal ones, windows across panels and within one, and keys that end within a
  // panel.
  for (const KeyBand band : {KeyBand{-kUnbounded, kUnbounded, 64}, KeyBand{-kUnbounded, 32, 64},
                             KeyBand{3, 40, 64}, KeyBand{-2, 5, 64}, KeyBand{-31, kUnbounded, 41}}) {
    SCOPED_TRACE(::testing::Message() << "keys " << band.first << " to " << band.last << " of " << band.keys);
    const float* const factors = random.in(0, 1) == 0 ? nullptr : dropped.data();
    const Attended want = attend(reference, scores, gradients, values, band, factors);
    for (const auto* units : runnable_units<T>()) {
      SCOPED_TRACE(::testing::Message() << name_of(units->isa) << ", " << sizeof(T) << " bytes");
      const Attended got = attend(*units, scores, gradients, own, band, factors);
      EXPECT_LT(distance(got.out, want.out), tolerance);
      EXPECT_LT(distance(got.of_keys, want.of_keys), tolerance);
      EXPECT_LT(distance(got.of_values, want.of_values), tolerance);
      EXPECT_LT(distance(got.of_queries, want.of_queries), tolerance);
      EXPECT_LT(distance(got.factors, want.factors), 1e-5);
      EXPECT_LT(distance(got.log_sum, want.log_sum), 1e-5);
    }
  }
}

// A score that is NaN makes its query's denominator NaN, on every kind of unit.
template <class T>
void expect_nan_is_kept() {
  for (const auto* units : runnable_units<T>()) {
    std::vector<float> scores(kPanelLines * kPanelLines, 0.5f), factors(32), log_sum(32), rescale(32);
    scores[3 * kPanelLines + 7] = NAN;
    const std::unique_ptr<char, decltype(&std::free)> numerators(
        static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(units->block_bytes))), &std::free);
    SoftmaxState state;
    units->softmax(scores.data(), nullptr, 1, {-kUnbounded, kUnbounded, 32}, 1.0f, true, state,
                   rescale.data(), numerators.get());
    units->softmax_end(state, factors.data(), log_sum.data());
    for (int i = 0; i < 32; ++i) EXPECT_EQ(std::isnan(log_sum[i]), i == 7) << name_of(units->isa) << " " << i;
  }
}
TEST(Units, KeepWhatIsNotANumber) {
  expect_nan_is_kept<float>();
  expect_nan_is_kept<Bf16>();
}

// attention_test.cpp compares the best units with the formula; here all kinds of units are compared with one
// kind.
TEST(Units, AttendAlike) {
  if (best_isa() < Isa::Avx2) GTEST_SKIP() << tessera::testing::skip::kUnits;
  Random random;
  expect_same_attention<float>(random, 2e-6, avx2::float_units());
  expect_same_attention<Bf16>(random, 2e-2, avx2::float_units());
}

#endif

}  // namespace
}  // namespace tessera::ops::kernels
