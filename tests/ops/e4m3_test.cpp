#include "tessera/ops/e4m3.h"

#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "tessera/core/strings.h"
#include "tessera/ops/cuda/aten_leaves.h"
#include "tessera/ops/deferred_gradient.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/lora.h"
#include "tessera/ops/product.h"
#include "tessera/ops/rms_norm.h"

#include "tests/testing/gradcheck.h"
#include "tests/testing/skip.h"

namespace tessera::ops {
namespace {

using namespace checks;

// Returns the e4m3 number nearest to x, in float64: 4 significant bits, steps of at least 2^-9, and a
// magnitude of at most 448.
double nearest(double x) {
  const double magnitude = std::min(std::abs(x), 448.0);
  const double step = std::ldexp(1.0, std::max(std::ilogb(magnitude), -6) - 3);
  return std::copysign(magnitude == 0.0 ? 0.0 : std::nearbyint(magnitude / step) * step, x);
}

// Returns x after a cast to e4m3 and back, with one scale for the whole tensor.
at::Tensor quantised(const at::Tensor& x) {
  at::Tensor result = x.detach().to(at::kDouble).contiguous().clone();
  const double scale = std::max(result.abs().max().item<double>(), 1e-12) / 448.0;
  auto* values = result.mutable_data_ptr<double>();
  for (int64_t i = 0; i < result.numel(); ++i) values[i] = scale * nearest(values[i] / scale);
  return result;
}

at::Tensor random(at::IntArrayRef sizes, uint64_t seed, double scale = 1.0) {
  return (random_tensor(sizes, seed) * scale).to(at::kBFloat16);
}

double distance(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor a = got.detach().to(at::kDouble), b = want.detach().to(at::kDouble);
  EXPECT_EQ(a.sizes(), b.sizes());
  return ((a - b).norm() / b.norm()).item<double>();
}

// kRounding is the most that rounding a result to bfloat16 may change, and kCast the least that a cast to
// e4m3 changes normal numbers: a result that is close to the formula must not be so because nothing was cast.
constexpr double kRounding = 3e-3, kCast = 1e-2;
void expect_cast(const at::Tensor& got, const at::Tensor& want, const at::Tensor& uncast, const char* what) {
  EXPECT_LE(distance(got, want), kRounding) << what;
  EXPECT_GE(distance(got, uncast), kCast) << what;
}

Evaluation run(const Op& op, const Inputs& inputs, std::optional<ProductType> type = ProductType::E4m3) {
  Inputs leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(trained(input));
  return evaluate(
      [&](const Inputs& in) {
        std::optional<ProductScope> products;
        if (type) products.emplace(*type);
        return op(in);
      },
      leaves);
}

at::Tensor plain_linear(const Inputs& in) {
  return in.size() > 2 ? ops::linear(in[0], in[1], in[2]) : ops::linear(in[0], in[1]);
}

TEST(E4m3Test, ALayerIsTheFormulaForwardAndBackward) {
  for (const int64_t rows : {1, 16, 37, 300}) {
    SCOPED_TRACE(rows);
    // The operands have different magnitudes, so their scales differ.
    const at::Tensor x = random({rows, 48}, 1, 30.0), weight = random({32, 48}, 2, 0.02),
                     bias = random({32}, 3);
    const Evaluation got = run(plain_linear, {x, weight, bias});
    const at::Tensor grad = direction_of(got.output);
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    expect_cast(got.output, at::mm(quantised(x), quantised(weight).t()) + wide(bias),
                at::mm(wide(x), wide(weight).t()) + wide(bias), "output");
    expect_cast(got.gradients[0], at::mm(quantised(grad), quantised(weight)),
                at::mm(wide(grad), wide(weight)), "gradient of x");
    expect_cast(got.gradients[1], at::mm(quantised(grad).t(), quantised(x)), at::mm(wide(grad).t(), wide(x)),
                "gradient of the weight");
    EXPECT_LE(distance(got.gradients[2], wide(grad).sum(0)), kRounding);
  }
}

TEST(E4m3Test, AnAdapterKeepsItsType) {
  const at::Tensor x = random({40, 48}, 1), weight = random({32, 48}, 2, 0.1),
                   mask = at::rand({40, 48}).gt(0.5);
  // The adapter's factors would change in e4m3; the base's operands, 1 and 0, are exact in it.
  const at::Tensor base = weight.gt(0).to(at::kBFloat16), ones = x.gt(0).to(at::kBFloat16);
  const at::Tensor a = random({16, 48}, 3), b = random({32, 16}, 4);
  for (const bool drops : {false, true}) {
    const auto scaled = drops ? std::optional(mask.to(at::kBFloat16) * 2) : std::nullopt;
    const Op op = [&](const Inputs& in) {
      return lora_linear(in[0], in[1], std::nullopt, in[2], in[3], 1.0, scaled);
    };
    const Evaluation got = run(op, {ones, base, a, b}), want = run(op, {ones, base, a, b}, std::nullopt);
    EXPECT_LE(distance(got.output, want.output), kRounding);
    for (const size_t of_adapter : {2, 3})
      EXPECT_TRUE(at::equal(got.gradients[of_adapter], want.gradients[of_adapter])) << of_adapter;
  }
  // The base's products are cast.
  const Op op = [](const Inputs& in) { return lora_linear(in[0], in[1], std::nullopt, in[2], in[3], 1.0); };
  const at::Tensor no_b = b * 0;
  const Evaluation got = run(op, {x, weight, a, no_b});
  const at::Tensor grad = direction_of(got.output);
  EXPECT_LE(distance(got.output, at::mm(quantised(x), quantised(weight).t())), kRounding);
  EXPECT_LE(distance(got.gradients[0], at::mm(quantised(grad), quantised(weight))), kRounding);
  EXPECT_LE(distance(got.gradients[1], at::mm(quantised(grad).t(), quantised(x))), kRounding);
}

TEST(E4m3Test, TheBackwardTakesTheTypeOfTheForward) {
  const Inputs inputs = {random({40, 48}, 1), random({32, 48}, 2)};
  const Evaluation plain = run(plain_linear, inputs, std::nullopt);
  const ProductScope products(ProductType::E4m3);
  const Evaluation inside = run(plain_linear, inputs, ProductType::OfOperands);
  EXPECT_TRUE(at::equal(inside.output, plain.output));
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(inside.gradients[i], plain.gradients[i]));
  EXPECT_FALSE(at::equal(run(plain_linear, inputs, std::nullopt).output, plain.output));
}

TEST(E4m3Test, WhatDoesNotFitIsMultipliedAsEver) {
  const auto same = [](const at::Tensor& x, const at::Tensor& weight) {
    const at::NoGradGuard no_grad;
    const at::Tensor want = ops::linear(x, weight);
    const ProductScope products(ProductType::E4m3);
    return at::equal(ops::linear(x, weight), want);
  };
  EXPECT_FALSE(same(random({8, 40}, 1), random({16, 40}, 2))) << "a depth is padded";
  EXPECT_TRUE(same(random({8, 48}, 1), random({20, 48}, 2))) << "a width of 20";
  EXPECT_TRUE(same(random({0, 48}, 1), random({16, 48}, 2))) << "no rows";
  EXPECT_TRUE(same(random_tensor({8, 48}, 1, at::kFloat), random_tensor({16, 48}, 2, at::kFloat)));
  EXPECT_TRUE(same(random_tensor({8, 48}, 1), random_tensor({16, 48}, 2)));
}

TEST(E4m3Test, NumbersAtTheEdgesOfTheRange) {
  const at::NoGradGuard no_grad;
  const at::Tensor ones = at::ones({16, 16}, at::TensorOptions(at::kCPU).dtype(at::kBFloat16));
  const ProductScope products(ProductType::E4m3);
  EXPECT_TRUE(at::equal(ops::linear(ones * 0.0, ones), ones * 0.0)) << "zeros, which have no scale";
  EXPECT_LE(distance(ops::linear(ones * 1e37, ones), ones * 16e37), kRounding);
  for (const double bad : {NAN, INFINITY}) {
    at::Tensor x = ones.clone();
    x[3][5] = bad;
    const at::Tensor y = ops::linear(x, ones);
    EXPECT_TRUE(y[3].isnan().all().item<bool>()) << "so that a run stops";
  }
}

// Products of marked layers add up their weight gradients directly, at once or deferred.
TEST(E4m3Test, GradientsThatAreAddedDirectlyAreCastToo) {
  const at::Tensor x = random({40, 48}, 1), start = random({32, 48}, 2);
  for (const bool defers : {false, true}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor weight = trained(start);
      accumulate_directly(weight, type);
      DeferredGradients later;
      const std::vector<double> factors = {1.0, 0.37};
      for (const double factor : factors) {
        const at::Tensor y = [&] {
          const ProductScope products(ProductType::E4m3);
          return ops::linear(x * factor, weight);
        }();
        std::optional<DeferGradientsScope> scope;
        if (defers) scope.emplace(&later);
        torch::autograd::backward({y}, {direction_of(y)});
      }
      later.run();
      at::Tensor want = at::zeros({32, 48}, at::TensorOptions(at::kCPU).dtype(at::kDouble));
      for (const double factor : factors) {
        const at::Tensor grad = random_tensor({40, 32}, 4711).to(at::kBFloat16);
        want += at::mm(quantised(grad).t(), quantised(x * factor));
      }
      EXPECT_EQ(weight.grad().scalar_type(), type);
      EXPECT_LE(distance(weight.grad(), want), type == at::kFloat ? 1e-5 : 2 * kRounding) << defers;
    }
  }
}

// The readers of a norm add their gradients to one sum.
TEST(E4m3Test, ReadersOfOneActivationAddTheirGradientsUp) {
  const Op op = [](const Inputs& in) {
    const Activation normed = add_rms_norm(in[0], std::nullopt, in[1], 1e-5).normed;
    return ops::linear(normed, in[2]) + ops::linear(normed, in[3]);
  };
  const Inputs inputs = {random({40, 48}, 1), random({48}, 2), random({32, 48}, 3), random({32, 48}, 4)};
  const Evaluation got = run(op, inputs), plain = run(op, inputs, std::nullopt);
  const at::Tensor grad = direction_of(got.output), normed = rms_norm(inputs[0], inputs[1], 1e-5);
  const at::Tensor grad_normed =
      at::mm(quantised(grad), quantised(inputs[2])) + at::mm(quantised(grad), quantised(inputs[3]));
  const Evaluation want = [&] {
    const at::Tensor x = trained(inputs[0].to(at::kDouble)), weight = trained(inputs[1].to(at::kDouble));
    const at::Tensor y = x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * weight;
    const auto gradients = torch::autograd::grad({y}, {x, weight}, {grad_normed});
    return Evaluation{y, {gradients[0], gradients[1]}};
  }();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_LE(distance(got.gradients[i], want.gradients[i]), 2 * kRounding);
    EXPECT_GE(distance(got.gradients[i], plain.gradients[i]), kCast);
  }
  EXPECT_LE(distance(got.gradients[2], at::mm(quantised(grad).t(), quantised(normed))), kRounding);
}

// Runs the product that CUDA's table of leaves calls, if LibTorch has it for this processor, and compares it
// with the host's.
TEST(E4m3Test, LibTorchsProductIsTheSame) {
  const at::Tensor x = random({37, 40}, 1), y = random({32, 40}, 2, 1e-3);
  const E4m3Matrix a = leaves(x).to_e4m3(x, {}), b = leaves(y).to_e4m3(y, {});
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const bool adds : {false, true}) {
      const at::Tensor want = random({37, 32}, 3).to(type), got = want.clone();
      leaves(want).multiply_e4m3(want, a, b, adds);
      try {
        cuda::scaled_product(got, a, b, adds);
      } catch (const std::exception& error) {  // thrown by LibTorch, or by oneDNN below it
        GTEST_SKIP() << testing::skip::kUnits << ": " << first_line(error.what());
      }
      EXPECT_LE(distance(got, want), type == at::kFloat ? 1e-6 : kRounding);
    }
  }
}

}  // namespace
}  // namespace tessera::ops
