// Compares, to the bit, the scales that kernels find of their own results with those of a pass over the
// results.
#include <functional>
#include <limits>

#include "tests/ops/cuda/machine.h"

namespace tessera::ops::cuda {
namespace {

class AbsmaxOfResults : public KernelTest {};

using Results = std::vector<Array<Bf16Bits>>;
// Starts a kernel on new results and returns them. For each result the kernel gets a place for its scale, or
// null.
using Call = std::function<Results(const std::vector<const ScaleResult*>& scales)>;

float scale_by_a_pass(const Array<Bf16Bits>& x) {
  const auto n = static_cast<int64_t>(x.values().size());
  const CudaKernels& kernels = machine()->kernels();
  const Array<double> space = workspace(kernels.e4m3_scale_workspace(n));
  const Array<float> scale(1);
  EXPECT_EQ(kernels.e4m3_scale(Type::BF16, x.data(), n, scale.data(), space.data(), nullptr), 0);
  return scale.values()[0];
}

// Checks the scales when each is asked for alone, and when all are; the results must not change by it.
void expect_scales(const Call& call, size_t count, const std::string& what) {
  const std::vector<const ScaleResult*> none(count, nullptr);
  const Results want = call(none);
  for (size_t only = count == 1 ? 1 : 0; only <= count; ++only) {
    std::vector<Array<float>> found;
    std::vector<Array<double>> spaces;
    std::vector<ScaleResult> asked;
    for (size_t i = 0; i < count; ++i) {
      found.emplace_back(1);
      spaces.push_back(workspace(kScaleWorkspace));
      asked.push_back({found[i].data(), spaces[i].data()});
    }
    std::vector<const ScaleResult*> scales = none;
    for (size_t i = 0; i < count; ++i) {
      if (only == count || only == i) scales[i] = &asked[i];
    }
    const Results got = call(scales);
    for (size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(what + ", result " + std::to_string(i));
      expect_same_bits(got[i].values(), want[i].values(), "a result does not depend on who asks");
      if (scales[i] == nullptr) continue;
      const float scale = found[i].values()[0], by_a_pass = scale_by_a_pass(got[i]);
      ASSERT_EQ(std::memcmp(&scale, &by_a_pass, sizeof scale), 0)
          << "got " << scale << ", need " << by_a_pass;
    }
  }
}

void expect_scales_in_any_grid(const Call& call, size_t count, const std::string& what, bool has_blocks) {
  expect_scales(call, count, what);
  if (has_blocks) with_small_grids([&] { expect_scales(call, count, what + ", small grids"); });
}

// Returns the values that a test puts into one element: a largest one and values that are not finite; 0 =
// none.
std::vector<double> odd_numbers(bool all) {
  return all ? std::vector<double>{0.0, -1e4, NAN, INFINITY} : std::vector<double>{-1e4};
}

std::vector<Bf16Bits> values_with(int64_t n, uint64_t stream, double odd) {
  auto values = random_values<Bf16Bits>(n, stream);
  if (odd != 0.0) set_value(odd, values[static_cast<size_t>(n - 1 - n / 3)]);
  return values;
}

std::string text(const std::string& what, int64_t n, double odd, int64_t offset) {
  return what + " of " + std::to_string(n) + " with " + std::to_string(odd) + " from " +
         std::to_string(offset);
}

TEST_F(AbsmaxOfResults, OfActivationsAndTheirGradients) {
  for (const int64_t n : {1, 8, 2049, 6011}) {
    for (const int64_t offset : {0, 1}) {
      for (const double odd : odd_numbers(n < 10 && offset == 0)) {
        const Array<Bf16Bits> gate(values_with(n, 1, 0.0), offset), up(values_with(n, 2, odd), offset),
            grad(values_with(n, 3, odd), offset);
        for (const Activate f : {Activate::Silu, Activate::Gelu, Activate::GeluTanh}) {
          if (f != Activate::Silu && n != 2049) continue;
          for (const bool is_gated : {true, false}) {
            const Bf16Bits* const factor = is_gated ? up.data() : nullptr;
            const Call forward = [&](const auto& scales) {
              const Array<Bf16Bits> y(n, offset);
              EXPECT_EQ(
                  kernels().activate(Type::BF16, f, gate.data(), factor, y.data(), n, scales[0], nullptr), 0);
              return Results{y};
            };
            expect_scales_in_any_grid(forward, 1, text("activation", n, odd, offset), n > 2000);
            const Call backward = [&](const auto& scales) {
              Results made = {Array<Bf16Bits>(n, offset)};
              if (is_gated) made.emplace_back(n, offset);
              EXPECT_EQ(kernels().activate_backward(Type::BF16, f, grad.data(), gate.data(), factor,
                                                    made[0].data(), is_gated ? made[1].data() : nullptr, n,
                                                    scales[0], is_gated ? scales[1] : nullptr, nullptr),
                        0);
              return made;
            };
            expect_scales_in_any_grid(backward, is_gated ? 2 : 1, text("gradients", n, odd, offset),
                                      n > 2000);
          }
        }
      }
    }
  }
}

TEST_F(AbsmaxOfResults, OfWhatIsTurned) {
  struct Shape {
    int64_t tokens, heads, half, offset;
  };
  for (const Shape& s :
       {Shape{1, 1, 1, 0}, Shape{5, 3, 32, 0}, Shape{33, 14, 64, 0}, Shape{4, 2, 5, 0}, Shape{3, 2, 32, 1}}) {
    const int64_t n = s.tokens * s.heads * 2 * s.half;
    std::vector<float> cos, sin;
    for (const float angle : random_values<float>(s.tokens * s.half, 2)) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
    const Array<float> cosines(cos), sines(sin);
    for (const double odd : odd_numbers(s.tokens == 5)) {
      const Array<Bf16Bits> x(values_with(n, 1, odd), s.offset);
      for (const bool in_place : {false, true}) {
        const Call back = [&](const auto& scales) {
          const Array<Bf16Bits> y(in_place ? x.values() : std::vector<Bf16Bits>(static_cast<size_t>(n)),
                                  s.offset);
          EXPECT_EQ(kernels().rope(Type::BF16, in_place ? y.data() : x.data(), cosines.data(), sines.data(),
                                   -1, y.data(), s.tokens, s.heads, s.half, scales[0], nullptr),
                    0);
          return Results{y};
        };
        expect_scales_in_any_grid(back, 1, text("rope", n, odd, s.offset), n > 2000);
      }
    }
  }
}

// Shapes of rows that registers hold, in groups of lanes and in blocks, and of the general form of the
// kernels; some have more rows than there are blocks that look for the largest value.
struct Rows {
  int64_t rows, width, offset;
};
const Rows kRows[] = {{1, 8, 0},     {9, 128, 0}, {7, 264, 0}, {2, 896, 0}, {2, 4104, 0}, {1, 8200, 0},
                      {1, 16392, 0}, {3, 33, 0},  {2, 896, 1}, {600, 8, 0}, {2100, 3, 0}};

TEST_F(AbsmaxOfResults, OfNorms) {
  for (const Rows& s : kRows) {
    const int64_t n = s.rows * s.width;
    for (const double odd : odd_numbers(s.rows == 9 || s.width == 33)) {
      const Array<Bf16Bits> x(values_with(n, 1, odd), s.offset), delta(values_with(n, 2, 0.0), s.offset);
      const Array<Bf16Bits> weight(random_values<Bf16Bits>(s.width, 3, 0.5, 1.0), s.offset);
      for (const bool adds : {false, true}) {
        const Call norm = [&](const auto& scales) {
          const Array<Bf16Bits> residual(n, s.offset), y(n, s.offset);
          const Array<float> inverse(s.rows);
          EXPECT_EQ(kernels().rms_norm(Type::BF16, Type::BF16, x.data(), adds ? delta.data() : nullptr,
                                       weight.data(), 1e-5, adds ? residual.data() : nullptr, y.data(),
                                       inverse.data(), s.rows, s.width, scales[0], nullptr),
                    0);
          return Results{y};
        };
        expect_scales_in_any_grid(norm, 1, text("norm", n, odd, s.offset), s.rows > 2);
      }
    }
  }
}

TEST_F(AbsmaxOfResults, OfGradientsOfNorms) {
  for (const Rows& s : kRows) {
    const int64_t n = s.rows * s.width;
    const Array<double> space = workspace(kernels().rms_norm_backward_workspace(s.rows, s.width));
    const Array<float> weight(random_values<float>(s.width, 3, 0.5, 1.0), s.offset);
    const Array<float> inverse(random_values<float>(s.rows, 4, 0.1, 1.0));
    for (const double odd : odd_numbers(s.rows == 9 || s.width == 33)) {
      const Array<Bf16Bits> x(values_with(n, 1, 0.0), s.offset), grad(values_with(n, 2, odd), s.offset),
          residual(values_with(n, 5, 0.0), s.offset);
      for (const bool trains : {false, true}) {
        const Call backward = [&](const auto& scales) {
          const Array<Bf16Bits> grad_x(n, s.offset);
          const Array<float> grad_weight(s.width);
          EXPECT_EQ(kernels().rms_norm_backward(Type::BF16, Type::F32, grad.data(), x.data(), weight.data(),
                                                inverse.data(), trains ? residual.data() : nullptr,
                                                grad_x.data(), trains ? grad_weight.data() : nullptr, s.rows,
                                                s.width, space.data(), scales[0], nullptr),
                    0);
          return Results{grad_x};
        };
        expect_scales_in_any_grid(backward, 1, text("norm's gradient", n, odd, s.offset), s.rows > 2);
      }
    }
  }
}

TEST_F(AbsmaxOfResults, AreOfBfloat16Alone) {
  const Array<float> x(8), scale(1);
  const Array<double> space = workspace(kScaleWorkspace);
  const ScaleResult asked = {scale.data(), space.data()};
  float* const at = x.data();
  EXPECT_NE(kernels().activate(Type::F32, Activate::Silu, at, nullptr, at, 8, &asked, nullptr), 0);
  EXPECT_NE(kernels().activate_backward(Type::F32, Activate::Silu, at, at, nullptr, at, nullptr, 8, &asked,
                                        nullptr, nullptr),
            0);
  EXPECT_NE(kernels().rope(Type::F32, at, at, at, -1, at, 1, 1, 4, &asked, nullptr), 0);
  EXPECT_NE(
      kernels().rms_norm(Type::F32, Type::F32, at, nullptr, at, 1e-5, nullptr, at, at, 1, 8, &asked, nullptr),
      0);
  EXPECT_NE(kernels().rms_norm_backward(Type::F32, Type::F32, at, at, at, at, nullptr, at, nullptr, 1, 8,
                                        nullptr, &asked, nullptr),
            0);
}

// A gradient that is not computed has no scale either.
TEST_F(AbsmaxOfResults, OfOneGradientOfTwo) {
  constexpr int64_t kN = 1000;
  const Array<Bf16Bits> gate(random_values<Bf16Bits>(kN, 1)), up(random_values<Bf16Bits>(kN, 2)),
      grad(random_values<Bf16Bits>(kN, 3));
  for (const bool of_gate : {false, true}) {
    const Array<Bf16Bits> made(kN);
    const Array<float> found(std::vector<float>{-1.0f}), other(std::vector<float>{-1.0f});
    const Array<double> space = workspace(kScaleWorkspace), more = workspace(kScaleWorkspace);
    const ScaleResult asked = {found.data(), space.data()}, in_vain = {other.data(), more.data()};
    ASSERT_EQ(
        kernels().activate_backward(Type::BF16, Activate::Silu, grad.data(), gate.data(), up.data(),
                                    of_gate ? made.data() : nullptr, of_gate ? nullptr : made.data(), kN,
                                    of_gate ? &asked : &in_vain, of_gate ? &in_vain : &asked, nullptr),
        0);
    EXPECT_EQ(found.values()[0], scale_by_a_pass(made));
    EXPECT_EQ(other.values()[0], -1.0f);
  }
}

}  // namespace
}  // namespace tessera::ops::cuda
