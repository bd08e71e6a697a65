#include "tessera/ops/weight.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tessera/ops/leaf.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/lora.h"
#include "tessera/ops/product.h"
#include "tessera/ops/small_linear.h"

#include "tests/ops/random_weight.h"

namespace tessera::ops {
namespace {

using checks::form_cases;
using checks::random_weight;

constexpr uint64_t kSeed = 4117;

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor wide = want.to(at::kDouble);
  return ((got.to(at::kDouble) - wide).norm() / wide.norm().clamp_min(1e-300)).item<double>();
}

double tolerance_of(at::ScalarType type) {
  return type == at::kDouble ? 1e-13 : type == at::kFloat ? 1e-6 : 4e-3;
}

// Returns the values of a weight as the io library expands them.
at::Tensor expanded(const Weight& weight) {
  const int64_t rows = weight.size(0), columns = weight.size(1);
  const at::Tensor values = at::empty({rows, columns});
  io::expand_blocks(*weight.form(), weight.stored().const_data_ptr(),
                    rows * columns / weight.form()->elements, values.mutable_data_ptr<float>());
  return values;
}

TEST(CodedWeight, HasTheValuesOfItsForm) {
  at::manual_seed(kSeed);
  for (const auto& [form, columns] : form_cases()) {
    SCOPED_TRACE(io::name_of(form));
    const Weight weight = random_weight(form, 7, 5 * columns);
    EXPECT_EQ(weight.size(0), 7);
    EXPECT_EQ(weight.size(1), 5 * columns);
    EXPECT_EQ(weight.t().size(0), 5 * columns);
    EXPECT_TRUE(at::equal(weight.rows(2, 3, at::kFloat), expanded(weight).narrow(0, 2, 3)));
    EXPECT_TRUE(at::equal(weight.rows(0, 7, at::kBFloat16), expanded(weight).to(at::kBFloat16)));
  }
}

// Products of both orientations equal those with the expanded values; rows and depths are no whole tiles, and
// more than is packed at a time.
TEST(CodedWeight, MultipliesAsItsValuesDo) {
  at::manual_seed(kSeed);
  struct Size {
    int64_t rows, tokens;
  };
  for (const auto& [form, columns] : form_cases()) {
    for (const auto& [rows, tokens] : {Size{1, 40}, Size{37, 9}, Size{100, 150}, Size{900, 65}}) {
      const int64_t in = columns * (rows > 100 ? (1100 / columns) : 3);
      const Weight weight = random_weight(form, rows, in);
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
        SCOPED_TRACE(io::name_of(form) + " " + at::toString(type) + " " + std::to_string(rows));
        const at::Tensor values = expanded(weight).to(type).to(at::kDouble);
        const at::Tensor x = at::randn({tokens, in}).to(type), g = at::randn({tokens, rows}).to(type);
        const at::Tensor a = at::randn({tokens, 2}).to(type), b = at::randn({2, rows}).to(type),
                         c = at::randn({2, in}).to(type);
        const at::Tensor forward =
            at::mm(x.to(at::kDouble), values.t()) + at::mm(a.to(at::kDouble), b.to(at::kDouble));
        const at::Tensor backward =
            at::mm(g.to(at::kDouble), values) + at::mm(a.to(at::kDouble), c.to(at::kDouble));
        EXPECT_LT(relative_error(product(x, weight.t(), {a, b}), forward), tolerance_of(type));
        EXPECT_LT(relative_error(product(g, weight, {a, c}), backward), tolerance_of(type));
        const at::Tensor sum = at::randn({tokens, in}).to(type),
                         before = sum.to(at::kDouble, false, /*copy=*/true);
        add_product(sum, g, weight);
        EXPECT_LT(relative_error(sum, before + at::mm(g.to(at::kDouble), values)), tolerance_of(type));
      }
    }
  }
}

TEST(CodedWeight, GivesTheLayersTheirGradients) {
  at::manual_seed(kSeed);
  for (const auto& [form, columns] : form_cases()) {
    SCOPED_TRACE(io::name_of(form));
    const Weight weight = random_weight(form, 40, 2 * columns);
    const at::Tensor values = expanded(weight).to(at::kDouble), bias = at::randn({40}, at::kDouble);
    const auto leaf = [](const at::Tensor& x) { return x.detach().clone().requires_grad_(true); };
    const at::Tensor x = at::randn({9, 2 * columns}, at::kDouble),
                     a = at::randn({3, 2 * columns}, at::kDouble), b = at::randn({40, 3}, at::kDouble),
                     grad = at::randn({9, 40}, at::kDouble);
    const auto run = [&](const Weight& w) {
      const at::Tensor xs[] = {leaf(x), leaf(x)};
      const at::Tensor la = leaf(a), lb = leaf(b);
      const at::Tensor y = linear(xs[0], w, bias), z = lora_linear(xs[1], w, bias, la, lb, 0.7);
      (y * grad).sum().backward();
      (z * grad).sum().backward();
      return std::vector<at::Tensor>{y.detach(),   z.detach(), xs[0].grad(),
                                     xs[1].grad(), la.grad(),  lb.grad()};
    };
    const auto got = run(weight), want = run(values);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(relative_error(got[i], want[i]), 1e-13) << i;
    const PlainOps plain;
    const auto formula = run(weight);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(relative_error(formula[i], want[i]), 1e-13) << i;
  }
}

// In generation few rows take a kernel of their own, also layers of different forms together.
TEST(CodedWeight, MultipliesFewRowsInGeneration) {
  at::manual_seed(kSeed);
  const c10::InferenceMode inference;
  const Weight q = random_weight(io::block_form(io::GgmlType::Q4_K), 33, 512),
               k = random_weight(io::block_form(io::GgmlType::Q6_K), 18, 512),
               v = random_weight(io::block_form(io::BlockKind::Nf4, 64), 5, 512);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t tokens : {1, 5, 16, 40}) {
      const at::Tensor x = at::randn({tokens, 512}).to(type), bias = at::randn({33}).to(type);
      if (!is_small_linear(x, q)) continue;  // plain formulas multiply few rows as many
      const auto got = small_linears(x, {{q, bias}, {k, std::nullopt}, {v, std::nullopt}});
      const auto want = [&](const Weight& w) {
        return at::mm(x.to(at::kDouble), expanded(w).to(type).to(at::kDouble).t());
      };
      EXPECT_LT(relative_error(got[0], want(q) + bias.to(at::kDouble)), tolerance_of(type));
      EXPECT_LT(relative_error(got[1], want(k)), tolerance_of(type));
      EXPECT_LT(relative_error(got[2], want(v)), tolerance_of(type));
    }
  }
}

}  // namespace
}  // namespace tessera::ops
