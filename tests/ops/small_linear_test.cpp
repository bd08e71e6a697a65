#include "tessera/ops/small_linear.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/panel_linear.h"
#include "tessera/ops/product_units.h"

#include "tests/ops/random_weight.h"
#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

struct Case {
  at::ScalarType type;
  double tolerance;  // relative to the size of a sum
};

class SmallLinear : public ::testing::TestWithParam<Case> {};

TEST_P(SmallLinear, EqualsThePlainFormula) {
  const auto [type, tolerance] = GetParam();
  for (const int64_t in : {1, 7, 64, 577}) {
    for (const int64_t outs : {1, 3, 4, 130}) {
      const at::Tensor weight = random_tensor({outs, in}, 1, type), bias = random_tensor({outs}, 2, type);
      for (const int64_t rows : {0, 1, 2, 3, 4, 7, 16}) {
        const at::Tensor x = random_tensor({rows, in}, 3, type);
        const at::Tensor product = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
        const double allowed = tolerance * std::sqrt(static_cast<double>(in));
        for (const bool has_bias : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << rows << " x " << in << " -> " << outs << ", bias " << has_bias);
          const at::Tensor want = has_bias ? product + bias.to(at::kDouble) : product;
          const at::Tensor got =
              small_linear(x, weight, has_bias ? std::optional<at::Tensor>(bias) : std::nullopt);
          ASSERT_EQ(got.scalar_type(), type);
          ASSERT_EQ(got.sizes(), want.sizes());
          if (rows == 0) continue;
          EXPECT_TRUE(at::allclose(got.to(at::kDouble), want, tolerance, 4.0 * allowed))
              << (got.to(at::kDouble) - want).abs().max().item<double>();
        }
      }
    }
  }
}

TEST_P(SmallLinear, ARowDoesNotDependOnOtherRowsOrThreads) {
  const auto type = GetParam().type;
  const at::Tensor weight = random_tensor({1026, 77}, 4, type), x = random_tensor({16, 77}, 5, type);
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> single;
  for (int64_t row = 0; row < 16; ++row) single.push_back(small_linear(x.narrow(0, row, 1), weight, {}));
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    for (const int64_t rows : {1, 2, 3, 5, 6, 7, 16}) {
      const at::Tensor y = small_linear(x.narrow(0, 0, rows), weight, {});
      for (int64_t row = 0; row < rows; ++row) {
        EXPECT_TRUE(at::equal(y[row], single[static_cast<size_t>(row)][0])) << row << " of " << rows;
      }
    }
  }
  at::set_num_threads(threads);
}

INSTANTIATE_TEST_SUITE_P(Types, SmallLinear,
                         ::testing::Values(Case{at::kDouble, 2e-15}, Case{at::kFloat, 5e-7},
                                           Case{at::kBFloat16, 4e-3}),
                         [](const auto& info) { return std::string(at::toString(info.param.type)); });

TEST_P(SmallLinear, SeveralLayersTogetherEqualEachAlone) {
  const auto type = GetParam().type;
  const at::Tensor x = random_tensor({3, 201}, 10, type);
  const std::vector<LinearOperands> layers = {
      {random_tensor({200, 201}, 11, type), std::nullopt},
      {random_tensor({1, 201}, 12, type), random_tensor({1}, 13, type)},
      {random_tensor({403, 201}, 14, type), random_tensor({403}, 15, type)}};
  const int threads = at::get_num_threads();
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    const auto results = small_linears(x, layers);
    ASSERT_EQ(results.size(), layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_TRUE(at::equal(results[i], small_linear(x, layers[i].weight, layers[i].bias))) << i;
    }
  }
  at::set_num_threads(threads);
}

TEST(SmallLinear, KeepsLeadingDimensionsAndReadsStridedRows) {
  const at::Tensor weight = random_tensor({5, 6}, 6), x = with_gaps(random_tensor({2, 3, 6}, 7));
  const at::Tensor y = small_linear(x, weight, {});
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 3, 5}));
  EXPECT_TRUE(at::allclose(y, at::matmul(x, weight.t()), 1e-14, 1e-14));
}

TEST(WidenedLinear, EqualsFloat32WithTheSameWeights) {
  const at::Tensor weight = random_tensor({700, 577}, 20, at::kBFloat16),
                   bias = random_tensor({700}, 21, at::kFloat);
  const at::Tensor wide = weight.to(at::kFloat);
  const c10::InferenceMode generation;
  for (const int64_t rows : {1, 3, 16, 17, 50}) {
    const at::Tensor x = random_tensor({rows, 577}, 22, at::kFloat);
    const at::Tensor got = ops::linear(x, weight, bias), want = ops::linear(x, wide, bias);
    EXPECT_EQ(got.scalar_type(), at::kFloat);
    if (rows <= kSmallLinearRows) {
      EXPECT_TRUE(at::equal(got, want)) << rows;
    } else {
      EXPECT_TRUE(at::allclose(got, want, 1e-5, 1e-4)) << rows;
    }
  }
  EXPECT_EQ(ops::linear(random_tensor({2, 9, 577}, 23, at::kFloat), weight).sizes(),
            at::IntArrayRef({2, 9, 700}));
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Some tens of rows: each row's bits are the same among others, on any number of threads.
TEST(PanelLinear, EqualsThePlainFormulaRowByRow) {
  const c10::InferenceMode generation;
  for (const auto& [in, outs] : {std::pair<int64_t, int64_t>{577, 131}, {16, 8}, {5, 3}, {48, 300}}) {
    SCOPED_TRACE(std::to_string(in) + " to " + std::to_string(outs));
    const at::Tensor weight = random_tensor({outs, in}, 1, at::kFloat), narrow = weight.to(at::kBFloat16),
                     bias = random_tensor({outs}, 2, at::kFloat),
                     x = random_tensor({kPanelLinearRows, in}, 3, at::kFloat);
    if (!is_panel_linear(x, weight)) continue;  // no own products of floats
    const at::Tensor all = panel_linears(x, {{weight, bias}})[0];
    const double size = std::sqrt(static_cast<double>(in));
    EXPECT_LT(largest_difference(all, x.to(at::kDouble).matmul(weight.to(at::kDouble).t()) + bias),
              4e-6 * size);
    for (const int64_t rows : {1, 2, 3, 5, 7, 11, 16, 17, 31, 32, 33, 64, 95}) {
      const at::Tensor some = x.narrow(0, 1, rows);
      const auto results = panel_linears(some, {{weight, bias}, {weight, std::nullopt}});
      EXPECT_TRUE(at::equal(results[0], all.narrow(0, 1, rows))) << rows;
      EXPECT_TRUE(at::equal(ops::linear(some, weight, bias), results[0])) << rows;
      EXPECT_LT(largest_difference(results[1] + bias, results[0]), 1e-5) << rows;
      EXPECT_TRUE(at::equal(panel_linears(some, {{narrow, bias}})[0],
                            panel_linears(some, {{narrow.to(at::kFloat), bias}})[0]))
          << rows;
      const int before = at::get_num_threads();
      at::set_num_threads(3);
      EXPECT_TRUE(at::equal(panel_linears(some, {{weight, bias}})[0], results[0])) << rows;
      at::set_num_threads(before);
    }
  }
}

// A ggml type, and the bytes of a block at which its halves lie; `exponent`: its first byte is an exponent.
struct CodedType {
  io::GgmlType type;
  std::vector<int64_t> halves;
  bool has_exponent = false;
};

// Returns a weight of random codes and of scales up to 1/16.
Weight random_codes(const CodedType& type, int64_t outs, int64_t in) {
  const io::BlockForm form = io::block_form(type.type);
  const at::Tensor stored = at::randint(256, {outs, form.row_bytes(in)}, at::kByte);
  auto* block = static_cast<uint8_t*>(stored.mutable_data_ptr());
  for (int64_t i = 0; i < outs * in / form.elements; ++i, block += form.bytes) {
    for (const int64_t at : type.halves)
      block[at + 1] = static_cast<uint8_t>((block[at + 1] & 0x83) | (i % 12) << 2);
    if (type.has_exponent) *block = static_cast<uint8_t>(i % 7 == 0 ? 0 : 118 + i % 7);
  }
  return {stored, form};
}

at::Tensor values_of(const Weight& weight) {
  const at::Tensor values = at::empty({weight.size(0), weight.size(1)}, at::kFloat);
  io::expand_blocks(*weight.form(), weight.stored().const_data_ptr(),
                    values.numel() / weight.form()->elements, values.mutable_data_ptr<float>());
  return values;
}

// Tells whether a coded weight is multiplied in digits ([Note: digits] in avx512_digits.h).
bool has_digits(const Weight& weight) {
  const kernels::Units<float>* const units = product_units<float>();
  return units != nullptr && units->has_digit_form != nullptr && units->has_digit_form(*weight.form());
}

// A layer of coded weights has the bits of the layer of their values or, where it is multiplied in digits, is
// as near to the exact products and has the same bits for any number of rows.
void expect_products_of_values(const Weight& weight) {
  const int64_t outs = weight.size(0), in = weight.size(1);
  SCOPED_TRACE(io::name_of(*weight.form()) + ", " + std::to_string(outs));
  const at::Tensor values = values_of(weight), bias = random_tensor({outs}, 2, at::kFloat),
                   x = random_tensor({kPanelLinearRows, in}, 3, at::kFloat);
  if (!is_panel_linear(x, weight)) return;  // no own products of floats
  ASSERT_TRUE(at::isfinite(values).all().item<bool>());
  const at::Tensor all = panel_linears(x, {{weight, bias}})[0];
  const at::Tensor exact = x.to(at::kDouble).matmul(values.to(at::kDouble).t()) + bias;
  const at::Tensor sizes = x.to(at::kDouble).norm(2, {1}, true) * values.to(at::kDouble).norm(2, {1});
  EXPECT_LT(((all - exact).abs() / sizes).max().item<double>(), 5e-7);
  for (const int64_t rows : {1, 2, 3, 8, 16, 17}) {
    const at::Tensor some = x.narrow(0, 1, rows);
    const at::Tensor want =
        has_digits(weight) ? all.narrow(0, 1, rows) : panel_linears(some, {{values, bias}})[0];
    EXPECT_TRUE(at::equal(panel_linears(some, {{weight, bias}})[0], want)) << rows;
  }
}

TEST(PanelLinear, MultipliesCodesAsTheirValues) {
  using io::GgmlType;
  const c10::InferenceMode generation;
  at::manual_seed(7);
  const std::vector<CodedType> types = {
      {GgmlType::Q8_0, {0}},       {GgmlType::Q4_0, {0}},      {GgmlType::Q4_1, {0, 2}},
      {GgmlType::Q5_0, {0}},       {GgmlType::Q5_1, {0, 2}},   {GgmlType::Q4_K, {0, 2}},
      {GgmlType::Q5_K, {0, 2}},    {GgmlType::Q6_K, {208}},    {GgmlType::Q2_K, {80, 82}},
      {GgmlType::Q3_K, {108}},     {GgmlType::IQ4_NL, {0}},    {GgmlType::IQ4_XS, {0}},
      {GgmlType::MXFP4, {}, true}, {GgmlType::NVFP4, {}, true}};
  for (const int64_t outs : {37, 16, 5}) {
    for (const CodedType& type : types) {
      const int64_t in = io::ggml_block_elements(type.type) == 256 ? 512 : 576;
      expect_products_of_values(random_codes(type, outs, in));
    }
    for (const checks::FormCase& item : checks::form_cases()) {
      if (item.form.kind == io::BlockKind::Ggml) continue;
      expect_products_of_values(checks::random_weight(item.form, outs, item.columns * 5));
    }
  }
}

// Elements of x that are not finite, very large or small, or beside much larger ones.
TEST(PanelLinear, MultipliesCodesByAnyNumbers) {
  const c10::InferenceMode generation;
  const Weight weight = checks::random_weight(io::block_form(io::GgmlType::Q8_0), 21, 96);
  const at::Tensor values = values_of(weight).to(at::kDouble);
  at::Tensor x = random_tensor({8, 96}, 4, at::kFloat);
  if (!is_panel_linear(x, weight)) return;  // no own products of floats
  x[0].zero_();
  x[1].mul_(1e30);
  x[2].mul_(1e-30);
  x[3].mul_(1e-44);
  x[4].narrow(0, 0, 90).mul_(1e-5);
  x[5][40] = std::numeric_limits<float>::infinity();
  x[6][95] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor got = panel_linears(x, {{weight, std::nullopt}})[0];
  const at::Tensor exact = x.to(at::kDouble).matmul(values.t());
  for (const int64_t row : {0, 1, 2, 3, 4, 7}) {
    const double size = x[row].abs().max().item<double>() * values.norm(2, {1}).max().item<double>();
    EXPECT_LE(largest_difference(got[row], exact[row]), 1e-6 * size + 1e-37) << row;
  }
  EXPECT_FALSE(at::isfinite(got[5]).any().item<bool>());
  EXPECT_TRUE(at::isnan(got[6]).all().item<bool>());
}

TEST(SmallLinear, IsTakenInGenerationAlone) {
  const at::Tensor weight = trained(random_tensor({40, 301}, 8, at::kFloat)),
                   x = random_tensor({2, 301}, 9, at::kFloat);
  const at::Tensor with_gradient = ops::linear(x, weight);
  EXPECT_TRUE(with_gradient.requires_grad());
  {
    // Activation recompute runs a forward once without and once with a gradient, so both must round alike.
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(is_small_linear(x, weight));
    EXPECT_TRUE(at::equal(ops::linear(x, weight), with_gradient));
  }
  const c10::InferenceMode generation;
  EXPECT_TRUE(at::equal(ops::linear(x, weight), small_linear(x, weight, {})));
  EXPECT_TRUE(is_small_linear(at::ones({16, 3}), at::ones({4, 3})));
  EXPECT_FALSE(is_small_linear(at::ones({kPanelLinearRows + 1, 3}), at::ones({4, 3})));
  EXPECT_FALSE(is_small_linear(at::ones({17, 3}, at::kDouble), at::ones({4, 3}, at::kDouble)));
  EXPECT_FALSE(is_small_linear(at::ones({1, 3}), at::ones({3, 4}).t()));
}

}  // namespace
}  // namespace tessera::ops
