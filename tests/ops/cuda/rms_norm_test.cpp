#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

constexpr double kEps = 1e-5;

// Shapes of rows that registers hold, in groups of lanes and in blocks, and of the general form, with both
// alignments.
struct Shape {
  int64_t rows, width, offset;
};
const Shape kShapes[] = {{0, 8, 0},    {1, 8, 0},    {5, 16, 0},    {9, 64, 0},  {33, 128, 0},
                         {3, 248, 0},  {2, 256, 0},  {3, 264, 0},   {2, 896, 0}, {2, 3584, 0},
                         {2, 4104, 0}, {1, 8200, 0}, {1, 16392, 0}, {4, 1, 0},   {3, 33, 0},
                         {2, 1025, 0}, {2, 896, 1},  {1, 4099, 3},  {600, 8, 0}};

template <class T>
struct Norm {
  std::vector<T> residual, y;
  std::vector<float> inverse;
};

template <class T, class W>
struct Inputs {
  Inputs(const Shape& s, double scale = 1.0)
      : x(random_values<T>(s.rows * s.width, 1, scale)),
        delta(random_values<T>(s.rows * s.width, 2, scale)),
        weight(random_values<W>(s.width, 3, 0.5, 1.0)) {}
  std::vector<T> x, delta;
  std::vector<W> weight;
};

template <class T, class W>
Norm<T> run(const Inputs<T, W>& in, const Shape& s, bool adds) {
  const Array<T> x(in.x, s.offset), delta(in.delta, s.offset);
  const Array<W> weight(in.weight, s.offset);
  const Array<T> residual(s.rows * s.width, s.offset), y(s.rows * s.width, s.offset);
  const Array<float> inverse(s.rows);
  EXPECT_EQ(machine()->kernels().rms_norm(type_of<T>(), type_of<W>(), x.data(), adds ? delta.data() : nullptr,
                                          weight.data(), kEps, adds ? residual.data() : nullptr, y.data(),
                                          inverse.data(), s.rows, s.width, nullptr, nullptr),
            0);
  return {adds ? residual.values() : in.x, y.values(), inverse.values()};
}

class RmsNormKernel : public KernelTest {};

TEST_F(RmsNormKernel, IsTheFormulaForEveryShape) {
  for_types([](auto tag) {
    using T = decltype(tag);
    for_types([](auto weight_tag) {
      using W = decltype(weight_tag);
      for (const Shape& s : kShapes) {
        for (const bool adds : {false, true}) {
          SCOPED_TRACE(std::to_string(s.rows) + " x " + std::to_string(s.width) + (adds ? ", adds" : ""));
          const Inputs<T, W> in(s);
          const Norm<T> got = run(in, s, adds);
          std::vector<T> residual = in.x;
          std::vector<double> inverse, y;
          for (int64_t r = 0; r < s.rows; ++r) {
            double squares = 0;
            for (int64_t c = 0; c < s.width; ++c) {
              T& sum = residual[static_cast<size_t>(r * s.width + c)];
              if (adds)
                set_value(value_of(sum) + value_of(in.delta[static_cast<size_t>(r * s.width + c)]), sum);
              squares += value_of(sum) * value_of(sum);
            }
            inverse.push_back(1 / std::sqrt(squares / static_cast<double>(s.width) + kEps));
            for (int64_t c = 0; c < s.width; ++c) {
              y.push_back(value_of(residual[static_cast<size_t>(r * s.width + c)]) * inverse.back() *
                          value_of(in.weight[static_cast<size_t>(c)]));
            }
          }
          expect_same_bits(got.residual, residual, "residual");
          expect_near(got.inverse, inverse, "inverse_rms");
          expect_near(got.y, y, "y", 2 * tolerance_of<T>());
          // The second kernel gives the same bits from the values that the first one has kept.
          const Array<T> kept(got.residual, s.offset), again(s.rows * s.width, s.offset);
          const Array<W> weight(in.weight, s.offset);
          const Array<float> kept_inverse(got.inverse);
          ASSERT_EQ(kernels().rms_norm_scale(type_of<T>(), type_of<W>(), kept.data(), weight.data(),
                                             kept_inverse.data(), again.data(), s.rows, s.width, nullptr),
                    0);
          expect_same_bits(again.values(), got.y, "y again");
        }
      }
    });
  });
}

TEST_F(RmsNormKernel, GivesTheSameBitsInAnyOrderOfThreadsAndForSmallGrids) {
  for_types([](auto tag) {
    using T = decltype(tag);
    for (const Shape& s : {Shape{37, 64, 0}, Shape{5, 896, 0}, Shape{5, 1001, 1}}) {
      const Inputs<T, T> in(s);
      const Norm<T> first = run(in, s, true), second = run(in, s, true);
      expect_same_bits(second.y, first.y, "y");
      with_small_grids([&] { expect_same_bits(run(in, s, true).y, first.y, "y in small grids"); });
    }
  });
}

TEST_F(RmsNormKernel, KeepsNotANumberAndInfinityInTheirRows) {
  const Shape s = {4, 896, 0};
  Inputs<float, float> in(s);
  in.x[3] = NAN;
  in.x[896 + 5] = INFINITY;
  in.x[2 * 896 + 7] = 3e38f;  // its square is infinite
  const Norm<float> got = run(in, s, false);
  EXPECT_TRUE(std::isnan(got.y[0]));
  EXPECT_TRUE(std::isnan(got.y[896 + 5]));
  EXPECT_EQ(got.y[896 + 6], 0.0f);
  EXPECT_EQ(got.y[2 * 896 + 7], 0.0f);
  for (size_t i = 3 * 896; i < 4 * 896; ++i) ASSERT_TRUE(std::isfinite(got.y[i]));
}

TEST_F(RmsNormKernel, WritesTheResidualInPlaceOfXOrDelta) {
  const Shape s = {3, 896, 0};
  const Inputs<Bf16Bits, float> in(s);
  const Norm<Bf16Bits> want = run(in, s, true);
  for (const bool over_x : {false, true}) {
    const Array<Bf16Bits> x(in.x), delta(in.delta), y(s.rows * s.width);
    const Array<float> weight(in.weight), inverse(s.rows);
    const Array<Bf16Bits>& residual = over_x ? x : delta;
    ASSERT_EQ(
        kernels().rms_norm(Type::BF16, Type::F32, x.data(), delta.data(), weight.data(), kEps,
                           residual.data(), y.data(), inverse.data(), s.rows, s.width, nullptr, nullptr),
        0);
    expect_same_bits(residual.values(), want.residual, "residual");
    expect_same_bits(y.values(), want.y, "y");
  }
}

struct Wants {
  bool x, weight, residual;
};

template <class T, class W>
struct Gradients {
  std::vector<T> x;
  std::vector<W> weight;
};

template <class T, class W>
Gradients<T, W> run_backward(const Inputs<T, W>& in, const std::vector<float>& inverse_values, const Shape& s,
                             const Wants& wants, bool in_place = false) {
  const Array<T> grad_y(in.delta, s.offset), x(in.x, s.offset);
  const Array<T> residual(random_values<T>(s.rows * s.width, 4), s.offset),
      grad_x(s.rows * s.width, s.offset);
  const Array<W> weight(in.weight, s.offset), grad_weight(s.width);
  const Array<float> inverse(inverse_values);
  const CudaKernels& kernels = machine()->kernels();
  const Array<double> space = workspace(kernels.rms_norm_backward_workspace(s.rows, s.width));
  const Array<T>& to = in_place ? grad_y : grad_x;
  EXPECT_EQ(kernels.rms_norm_backward(
                type_of<T>(), type_of<W>(), grad_y.data(), x.data(), weight.data(), inverse.data(),
                wants.residual ? residual.data() : nullptr, wants.x ? to.data() : nullptr,
                wants.weight ? grad_weight.data() : nullptr, s.rows, s.width, space.data(), nullptr, nullptr),
            0);
  return {wants.x ? to.values() : std::vector<T>(), wants.weight ? grad_weight.values() : std::vector<W>()};
}

template <class T>
std::vector<float> inverses(const std::vector<T>& x, const Shape& s) {
  std::vector<float> inverse;
  for (int64_t r = 0; r < s.rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < s.width; ++c)
      squares += std::pow(value_of(x[static_cast<size_t>(r * s.width + c)]), 2);
    inverse.push_back(static_cast<float>(1 / std::sqrt(squares / static_cast<double>(s.width) + kEps)));
  }
  return inverse;
}

TEST_F(RmsNormKernel, BackwardIsTheFormulaForEveryShape) {
  for_types([](auto tag) {
    using T = decltype(tag);
    for_types([](auto weight_tag) {
      using W = decltype(weight_tag);
      for (const Shape& s : kShapes) {
        for (const Wants& wants :
             {Wants{true, true, true}, Wants{true, false, false}, Wants{false, true, false}}) {
          const bool is_large = s.rows > 100 || s.width > 4000;
          if (is_large && !(wants.x && wants.weight && std::is_same_v<T, W>)) continue;
          SCOPED_TRACE(std::to_string(s.rows) + " x " + std::to_string(s.width) + (wants.x ? ", x" : "") +
                       (wants.weight ? ", weight" : ""));
          const Inputs<T, W> in(s);
          const std::vector<float> inverse = inverses(in.x, s);
          const std::vector<double> residual = doubles(random_values<T>(s.rows * s.width, 4));
          std::vector<double> grad_x, grad_weight(static_cast<size_t>(s.width));
          for (int64_t r = 0; r < s.rows; ++r) {
            const auto at = [&](int64_t c) { return static_cast<size_t>(r * s.width + c); };
            const double inv = inverse[static_cast<size_t>(r)];
            double dot = 0;
            for (int64_t c = 0; c < s.width; ++c) {
              const double dy = value_of(in.delta[at(c)]), x = value_of(in.x[at(c)]);
              dot += dy * value_of(in.weight[static_cast<size_t>(c)]) * x;
              grad_weight[static_cast<size_t>(c)] += dy * x * inv;
            }
            for (int64_t c = 0; c < s.width; ++c) {
              const double dy = value_of(in.delta[at(c)]), x = value_of(in.x[at(c)]);
              grad_x.push_back((wants.residual ? residual[at(c)] : 0.0) +
                               inv * (dy * value_of(in.weight[static_cast<size_t>(c)]) -
                                      x * dot * inv * inv / static_cast<double>(s.width)));
            }
          }
          const Gradients<T, W> got = run_backward(in, inverse, s, wants);
          if (wants.x) expect_near(got.x, grad_x, "grad_x", 2 * tolerance_of<T>());
          if (wants.weight) expect_near(got.weight, grad_weight, "grad_weight", 2 * tolerance_of<W>());
        }
      }
    });
  });
}

TEST_F(RmsNormKernel, BackwardGivesTheSameBitsInAnyOrderInPlaceAndForSmallGrids) {
  for_types([](auto tag) {
    using T = decltype(tag);
    // The first shape has more rows than there are pieces; rows are in groups of lanes, in blocks, and of
    // the general form.
    for (const Shape& s : {Shape{1061, 64, 0}, Shape{5, 896, 0}, Shape{6, 4096, 0}, Shape{5, 1001, 1}}) {
      SCOPED_TRACE(std::to_string(s.rows) + " x " + std::to_string(s.width));
      const Inputs<T, T> in(s);
      const std::vector<float> inverse = inverses(in.x, s);
      const Wants all = {true, true, true};
      const Gradients<T, T> first = run_backward(in, inverse, s, all),
                            second = run_backward(in, inverse, s, all, true);
      expect_same_bits(second.x, first.x, "grad_x");
      expect_same_bits(second.weight, first.weight, "grad_weight");
      with_small_grids([&] {
        const Gradients<T, T> small = run_backward(in, inverse, s, all);
        expect_same_bits(small.x, first.x, "grad_x in small grids");
        expect_same_bits(small.weight, first.weight, "grad_weight in small grids");
      });
    }
  });
}

TEST_F(RmsNormKernel, TypesWithoutAKernelAreRefused) {
  const Array<double> x(8);
  const Array<float> inverse(1);
  EXPECT_NE(kernels().rms_norm(Type::F64, Type::F32, x.data(), nullptr, x.data(), kEps, nullptr, x.data(),
                               inverse.data(), 1, 4, nullptr, nullptr),
            0);
  EXPECT_NE(kernels().rms_norm(Type::F32, Type::F16, x.data(), nullptr, x.data(), kEps, nullptr, x.data(),
                               inverse.data(), 1, 4, nullptr, nullptr),
            0);
  EXPECT_STREQ(kernels().error_text(1), "invalid argument");
}

}  // namespace
}  // namespace tessera::ops::cuda
