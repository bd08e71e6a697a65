// Tests that compare a table of leaves with the host's; a program that has such a table instantiates
// LeavesOf. The table runs on the host too, or on the device that the case names.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/ignore_label.h"
#include "tessera/ops/adamw.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/cached_attention.h"
#include "tessera/ops/cast.h"
#include "tessera/ops/counter_dropout.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/linear_cross_entropy.h"
#include "tessera/ops/lora.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/placed_attention.h"
#include "tessera/ops/product.h"
#include "tessera/ops/rms_norm.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/small_linear.h"
#include "tessera/ops/sum_of_squares.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops::leaf_tests {

using namespace checks;

struct Tolerances {
  double float64 = 1e-13, float32 = 2e-6, bfloat16 = 1e-2;

  double of(at::ScalarType type) const {
    return type == at::kDouble ? float64 : type == at::kFloat ? float32 : bfloat16;
  }
};

// Expects |got - want| <= tolerance |want| as vectors, and that values which are not finite are equal.
// `want` lies on the host.
inline void expect_close(const at::Tensor& got_there, const at::Tensor& want, const char* what,
                         const Tolerances& tolerances = {}) {
  ASSERT_EQ(got_there.defined(), want.defined()) << what;
  if (!want.defined()) return;
  ASSERT_EQ(got_there.sizes(), want.sizes()) << what;
  ASSERT_EQ(got_there.scalar_type(), want.scalar_type()) << what;
  const at::Tensor got = got_there.to(want.device());
  const double tolerance = tolerances.of(want.scalar_type());
  const at::Tensor finite = at::isfinite(want), none = at::zeros({}, at::kDouble);
  const auto rest = [&](const at::Tensor& x) { return at::where(finite, none, x.to(at::kDouble)); };
  EXPECT_TRUE(at::equal(rest(got), rest(want))) << what;
  const auto numbers = [&](const at::Tensor& x) {
    return at::where(finite, x.detach().to(at::kDouble), none);
  };
  const double error = (numbers(got) - numbers(want)).norm().item<double>();
  EXPECT_LE(error, tolerance * numbers(want).norm().item<double>()) << what;
}

// Compares the op by the table, on the device `there`, with the op on the host: the output without gradient,
// then the output and all gradients.
inline void expect_same_by(const Leaves& table, const Op& op, const Inputs& inputs,
                           at::Device there = at::kCPU, const Tolerances& tolerances = {}) {
  at::Tensor output;
  Evaluation want;
  const auto run = [&](at::Device place, at::Tensor& alone, Evaluation& all) {
    Inputs moved, leaves;
    for (const at::Tensor& input : inputs) moved.push_back(input.to(place));
    {
      const at::NoGradGuard no_grad;
      alone = op(moved);
    }
    for (const at::Tensor& input : moved) leaves.push_back(trained(input));
    all = evaluate(op, leaves);
  };
  run(at::kCPU, output, want);
  const LeavesScope scope(&table);
  at::Tensor other_output;
  Evaluation got;
  run(there, other_output, got);
  expect_close(other_output, output, "without gradient", tolerances);
  expect_close(got.output, want.output, "output", tolerances);
  for (size_t i = 0; i < inputs.size(); ++i)
    expect_close(got.gradients[i], want.gradients[i], "gradient", tolerances);
}

struct TableCase {
  const char* name;
  const Leaves& (*table)();
  at::ScalarType type;
  at::Device (*device)() = nullptr;        // null = the host
  std::string (*why_skipped)() = nullptr;  // the tests run if it is null or returns no reason
  Tolerances tolerances = {};
};

class LeavesOf : public ::testing::TestWithParam<TableCase> {
 protected:
  static at::ScalarType type() { return GetParam().type; }
  static const Leaves& table() { return GetParam().table(); }
  static at::Device there() { return GetParam().device == nullptr ? at::kCPU : GetParam().device(); }
  static at::Tensor random(at::IntArrayRef sizes, uint64_t seed) {
    return random_tensor(sizes, seed, type());
  }
  void SetUp() override {
    const std::string why = GetParam().why_skipped == nullptr ? "" : GetParam().why_skipped();
    if (!why.empty()) GTEST_SKIP() << why;
  }

  // Compares the op by the case's table, on the case's device, with the host.
  static void expect_same(const Op& op, const Inputs& inputs) {
    expect_same_by(table(), op, inputs, there(), GetParam().tolerances);
  }
  // Compares the tensors that run(device) returns: on the host, and by the case's table on its device.
  template <class Run>
  static void expect_same_runs(const Run& run, const char* what) {
    const std::vector<at::Tensor> want = run(at::Device(at::kCPU));
    const LeavesScope scope(&table());
    const std::vector<at::Tensor> got = run(there());
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], what, GetParam().tolerances);
  }
};

TEST_P(LeavesOf, Products) {
  const at::Tensor x = random({2, 7, 12}, 1), weight = random({20, 12}, 2), bias = random({20}, 3);
  const at::Tensor a = random({3, 12}, 4) * 0.3, b = random({20, 3}, 5) * 0.3;
  expect_same([](const Inputs& in) { return ops::linear(in[0], in[1]); }, {x, weight});
  expect_same([](const Inputs& in) { return ops::linear(in[0], in[1], in[2]); }, {x, weight, bias});
  for (const bool drops : {false, true}) {
    const auto mask = [drops](const at::Tensor& of) {
      return drops ? std::optional(dropout_mask(of.sizes(), 0.4, 1, 2, 3, 0, of.detach().options()))
                   : std::nullopt;
    };
    expect_same(
        [&](const Inputs& in) { return lora_linear(in[0], in[1], in[2], in[3], in[4], 1.5, mask(in[0])); },
        {x, weight, bias, a, b});
    expect_same(
        [&](const Inputs& in) {
          return lora_linear(in[0], in[1], std::nullopt, in[2], in[3], 1.5, mask(in[0]));
        },
        {x, weight, a, b});
  }
}

// Only operands of bfloat16 are cast to e4m3; products in other types stay what they are.
TEST_P(LeavesOf, ProductsInE4m3) {
  const auto in_e4m3 = [](const Op& op) {
    return [op](const Inputs& in) {
      const ProductScope products(ProductType::E4m3);
      return op(in);
    };
  };
  const at::Tensor x = random({3, 37, 48}, 1), weight = random({80, 48}, 2), bias = random({80}, 3);
  const at::Tensor a = random({16, 48}, 4) * 0.3, b = random({80, 16}, 5) * 0.3;
  expect_same(in_e4m3([](const Inputs& in) { return ops::linear(in[0], in[1], in[2]); }), {x, weight, bias});
  expect_same(in_e4m3([](const Inputs& in) { return ops::linear(in[0], in[1]); }),
              {x[0].slice(0, 0, 1), weight});
  expect_same(
      in_e4m3([](const Inputs& in) { return lora_linear(in[0], in[1], std::nullopt, in[2], in[3], 1.5); }),
      {x, weight, a, b});
  const auto cast = [&](at::Device place) {
    std::vector<at::Tensor> codes;
    for (const at::Tensor& matrix :
         {x[0], x[0].t(), x[1].slice(1, 3, 11), x[2].slice(0, 0, 32), weight * 0.0}) {
      const E4m3Matrix made = leaves(matrix.to(place)).to_e4m3(matrix.to(place), {});
      codes.push_back(made.codes.view(at::kByte).to(at::kFloat));
      codes.push_back(made.scale);
    }
    return codes;
  };
  if (type() == at::kBFloat16) expect_same_runs(cast, "codes");
}

// The scale that a table gives of a tensor that it has made is the one that a pass over the tensor finds.
TEST_P(LeavesOf, ScalesThatAreSaidAreThoseOfTheNumbers) {
  const auto there_of = [](const at::Tensor& x) { return x.to(there()); };
  const at::Tensor x = there_of(random({70, 96}, 1)), y = there_of(random({70, 96}, 2)),
                   weight = there_of(random({96}, 3)),
                   angles = there_of(random_tensor({70, 16}, 4, at::kFloat));
  const ProductScope products(ProductType::E4m3);
  const NormedRows normed = table().rms_norm(x, y, weight, 1e-5);
  const MlpInputs gradients = table().activate_mlp_backward(Nonlinearity::Silu, y, {x, y}, true, true);
  const at::Tensor turned = at::empty_like(x);
  table().rope(x, angles.cos(), angles.sin(), {2 * angles.size(1)}, -1, turned);
  const at::Tensor all[] = {normed.y,
                            table().rms_norm_backward(y, x, x, weight, normed.inverse_rms, true, true).first,
                            table().activate_mlp(Nonlinearity::Silu, {x, y}),
                            gradients.gate,
                            gradients.up,
                            turned};
  for (const at::Tensor& made : all) {
    const at::Tensor said = known_e4m3_scale(made);
    EXPECT_TRUE(!said.defined() || at::equal(said, table().to_e4m3(made, {}).scale));
  }
}

TEST_P(LeavesOf, SumsOfProducts) {
  const at::Tensor a = random({70, 64}, 1), b = random({64, 80}, 2), more_a = random({70, 3}, 3),
                   more_b = random({3, 80}, 4);
  const at::ScalarType wide = type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto run = [&](at::Device place) {
    const at::Tensor sum = at::ones({70, 80}, at::TensorOptions(place).dtype(wide));
    add_product(sum, a.to(place), b.to(place), {more_a.to(place), more_b.to(place)});
    return sum;
  };
  const at::Tensor want = run(at::kCPU);
  const LeavesScope scope(&table());
  const at::Tensor got = run(there()).to(at::kCPU);
  EXPECT_TRUE(at::allclose(got, want, 1e-5, 1e-4)) << (got - want).abs().max();
}

TEST_P(LeavesOf, Norms) {
  const at::Tensor x = random({2, 7, 12}, 1), delta = random({2, 7, 12}, 2), scale = random({12}, 3);
  expect_same([](const Inputs& in) { return ops::rms_norm(in[0], in[1], 1e-5); }, {x, scale});
  expect_same(
      [](const Inputs& in) {
        const NormedResidual both = add_rms_norm(in[0], in[1], in[2], 1e-5);
        return both.residual * 0.5 + both.normed.value();
      },
      {x, delta, scale});
  // Products read the norm: they recompute it and leave their gradients to it.
  expect_same(
      [](const Inputs& in) {
        const NormedResidual both = add_rms_norm(in[0], std::nullopt, in[1], 1e-5);
        return ops::linear(both.normed, in[2]) + ops::linear(both.normed, in[2]);
      },
      {x, scale, random({5, 12}, 4)});
}

TEST_P(LeavesOf, Activations) {
  const at::Tensor x = random({2, 7, 12}, 1), up = random({2, 7, 12}, 2), weight = random({5, 12}, 3);
  for (const auto f : {Nonlinearity::Silu, Nonlinearity::Gelu, Nonlinearity::GeluTanh}) {
    expect_same([&](const Inputs& in) { return activate_mlp(f, {in[0], in[1]}); }, {x, up});
    expect_same([&](const Inputs& in) { return activate_mlp(f, {in[0], {}}); }, {x});
    expect_same(
        [&](const Inputs& in) {
          return ops::linear(mlp_activation(f, {in[0], in[1]}, {}), in[2]);
        },
        {x, up, weight});
  }
}

const AttentionFormula kFormulas[] = {{0.4},
                                      {.scale = 0.4, .window = 2},
                                      {.scale = 0.4, .is_causal = false},
                                      {.scale = 0.4, .is_causal = false, .window = 2, .soft_cap = 0.8},
                                      {.scale = 0.4, .soft_cap = 0.8}};

// The spans' keys lie before, around and after their queries, and some queries have no key.
TEST_P(LeavesOf, AttentionOverSpans) {
  const at::Tensor q = random({9, 4, 6}, 1), k = random({11, 2, 6}, 2), v = random({11, 2, 6}, 3),
                   grad = random({9, 4, 6}, 4);
  const std::vector<AttentionSpan> spans = {{0, 4, 2, 5, 3}, {4, 3, 7, 4, -1}, {7, 2, 0, 2, 0}};
  for (const AttentionFormula& formula : kFormulas) {
    const auto run = [&](at::Device place) {
      const at::Tensor q_there = q.to(place), k_there = k.to(place), v_there = v.to(place);
      const AttentionResult result = attend_spans(q_there, k_there, v_there, spans, formula);
      const AttentionGradients of =
          attend_spans_backward(grad.to(place), q_there, k_there, v_there, result, spans, formula);
      return std::vector<at::Tensor>{result.out, result.log_sum, of.q, of.k, of.v};
    };
    expect_same_runs(run, "spans");
  }
}

TEST_P(LeavesOf, Attention) {
  const at::Tensor q = random({9, 4, 6}, 8), k = random({9, 2, 6}, 9), v = random({9, 2, 6}, 10);
  const at::Tensor angles =
      random_tensor({9, 3}, 11, at::kFloat).to(type() == at::kDouble ? at::kDouble : at::kFloat);
  expect_same(
      [&](const Inputs& in) {
        const at::Tensor there = angles.to(in[0].device());
        return apply_rope_(in[0] * 1.0, there.cos(), there.sin());
      },
      {q});
  for (const AttentionFormula& formula : kFormulas) {
    expect_same(
        [&](const Inputs& in) {
          return document_attention(in[0], in[1], in[2], {0, 1, 1, 6, 9}, formula);
        },
        {q, k, v});
    expect_same(
        [&](const Inputs& in) {
          return document_attention(in[0], in[1], in[2], {0, 9}, formula);
        },
        {q, q * 0.5, v.repeat({1, 2, 1})});
  }
}

TEST_P(LeavesOf, CachedAttention) {
  const auto run = [&](at::Device place, const AttentionFormula& formula) {
    const auto random_there = [place](at::IntArrayRef sizes, uint64_t seed) {
      return random(sizes, seed).to(place);
    };
    constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 6, kLayers = 2;
    CachedBatch batch{kKvHeads, kHeadDim, type(), {}};
    // Each case is {past tokens, new tokens}: in the middle of a page, over the end of one, and a whole
    // prompt.
    int64_t first = 0;
    for (const auto& [past, added] :
         std::vector<std::pair<int64_t, int64_t>>{{5, 1}, {30, 5}, {0, 40}, {64, 1}}) {
      CachedSequence sequence{0, past, past, {}};
      for (int64_t token = 0; token < past + added; token += kCachePageTokens) {
        sequence.pages.push_back(at::full({cache_page_elements(kLayers, kKvHeads, kHeadDim)}, NAN,
                                          at::TensorOptions(place).dtype(type())));
      }
      if (past > 0) {
        CachedBatch earlier = batch;
        earlier.sequences = {sequence};
        write_cache(earlier, 1, random_there({past, kKvHeads, kHeadDim}, static_cast<uint64_t>(past)),
                    random_there({past, kKvHeads, kHeadDim}, static_cast<uint64_t>(past + 1)));
      }
      batch.sequences.push_back({first, added, past + added, sequence.pages});
      first += added;
    }
    write_cache(batch, 1, random_there({first, kKvHeads, kHeadDim}, 7),
                random_there({first, kKvHeads, kHeadDim}, 8));
    return std::vector{cached_attention(random_there({first, kHeads, kHeadDim}, 9), batch, 1, formula)};
  };
  for (const AttentionFormula& formula : {kFormulas[0], kFormulas[1], kFormulas[4]})
    expect_same_runs([&](at::Device place) { return run(place, formula); }, "attention");
}

TEST_P(LeavesOf, AttentionOfRows) {
  constexpr int64_t kRows = 5, kLength = 96, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
  const at::Tensor lengths = at::tensor(std::vector<int64_t>{1, 31, 64, 65, 96}, at::kLong);
  // Values behind a row's tokens must not matter: they are NaN.
  const at::Tensor behind = at::arange(kLength).ge(lengths.unsqueeze(1)).view({kRows, kLength, 1, 1});
  const auto cached = [&](uint64_t seed) {
    return random({kRows, kLength, kKvHeads, kHeadDim}, seed).masked_fill(behind, NAN);
  };
  for (const AttentionFormula& formula : {kFormulas[0], kFormulas[1], kFormulas[4]}) {
    expect_same_runs(
        [&](at::Device place) {
          return std::vector{attend_rows(random({kRows, kHeads, kHeadDim}, 9).to(place), cached(7).to(place),
                                         cached(8).to(place), lengths.to(place), formula)};
        },
        "attention of rows");
  }
}

TEST_P(LeavesOf, Losses) {
  const at::Tensor hidden = random({9, 6}, 1), weight = random({11, 6}, 2);
  const int64_t no = kIgnoreLabel;
  for (const at::Tensor& labels :
       {at::tensor(std::vector<int64_t>{3, 0, 10, 5, 5, 1, 2, 9, 4}, at::kLong),
        at::tensor(std::vector<int64_t>{no, 3, no, 10, no, no, 0, 7, no}, at::kLong),
        at::full({9}, no, at::kLong)}) {
    for (const int64_t chunk : {0, 2}) {
      expect_same([&](const Inputs& in) { return linear_cross_entropy(in[0], in[1], labels, chunk); },
                  {hidden, weight});
      // Two ranks hold the vocabulary: this one has the tokens from 4 on, and the other one's sums are made
      // up.
      VocabularyPart part{4, 15, {}, {}};
      part.all_max = [](const at::Tensor& largest) { largest.clamp_min_(0.5); };
      part.all_sum = [](const at::Tensor& sums) { sums.add_(0.25); };
      expect_same([&](const Inputs& in) { return linear_cross_entropy(in[0], in[1], labels, chunk, &part); },
                  {hidden, weight});
      expect_same(
          [&](const Inputs& in) {
            return linear_cross_entropy(in[0], in[1], labels, chunk, &part, nullptr, LossTerms{0.1, 0.3});
          },
          {hidden, weight});
    }
  }
}

TEST_P(LeavesOf, DirectGradients) {
  const auto run = [&](at::Device place) {
    const at::Tensor weight = trained(random({11, 6}, 2).to(place));
    accumulate_directly(weight, type() == at::kDouble ? at::kDouble : at::kFloat);
    const at::Tensor ids = at::tensor(std::vector<int64_t>{3, 1, 4, 1, 5}, at::kLong);
    for (int backward = 0; backward < 2; ++backward) {
      const at::Tensor x = ops::embedding(weight, ids.to(place));
      (ops::linear(x, weight).sum() + linear_cross_entropy(x, weight, ids)).backward();
    }
    return weight.grad();
  };
  const at::Tensor want = run(at::kCPU);
  const LeavesScope scope(&table());
  const at::Tensor got = run(there()).to(at::kCPU);
  ASSERT_EQ(got.scalar_type(), want.scalar_type());
  const double error = (got - want).norm().item<double>() / want.norm().item<double>();
  EXPECT_LE(error, type() == at::kDouble ? 1e-14 : type() == at::kFloat ? 1e-6 : 1e-2);
}

TEST_P(LeavesOf, Updates) {
  const auto run = [&](at::Device place) {
    const auto random_there = [place](uint64_t seed) { return random({1234}, seed).to(place); };
    std::vector<at::Tensor> all;
    for (uint64_t i = 0; i < 3; ++i) all.push_back(random_there(i));
    all[2].abs_();
    const AdamWUpdate update{3, 0.01, 0.9, 0.99, 1e-8, 0.1, 0.7};
    const at::Tensor narrow = random_tensor({1234}, 8, at::kBFloat16).to(place);
    for (uint64_t i = 10; i < 13; ++i) all.push_back(random_there(i).abs_());
    adamw({{all[0], random_there(9), all[1], all[2], update},
           {all[3], narrow, all[4], all[5], {4, 0.02, 0.9, 0.99, 1e-8, 0.0, 1.0}}});
    // The updates take a factor that lies on the device, and one factor that forbids the update.
    const auto scalar = [place](double value) {
      return at::full({}, value, at::TensorOptions(place).dtype(at::kDouble));
    };
    adamw({{all[0], random_there(9), all[1], all[2], update}, {all[3], narrow, all[4], all[5], update}},
          scalar(0.37));
    adamw({{all[0], random_there(9), all[1], all[2], update}, {all[3], narrow, all[4], all[5], update}},
          scalar(NAN));
    all.push_back(sum_of_squares(random_there(5)));
    const at::Tensor cast = at::empty({1234}, at::TensorOptions(place).dtype(at::kBFloat16));
    cast_into(cast, all[0]);
    all.push_back(cast);
    return all;
  };
  expect_same_runs(run, "update");
}

// The states are exact before they are rounded, so results agree to the bit, however elements are numbered.
TEST_P(LeavesOf, StatesInBfloat16ToTheBit) {
  const int64_t size = 4099;
  const auto run = [&](at::Device place) {
    const auto numbers_from = [&](int64_t from, double unit, at::ScalarType of_type) {
      return ((at::arange(from, from + size, at::kLong) * 37 % 255) - 127)
          .to(at::kDouble)
          .mul(unit)
          .to(of_type);
    };
    AdamWUpdate update{3, 0.01, 0.5, 0.75, 1e-8, 0.1, 1.0};
    std::vector<at::Tensor> states;
    std::vector<AdamWTensors> all;
    for (const ElementNumbers& numbers :
         std::vector<ElementNumbers>{{.width = size},
                                     {.width = 12, .first = 8, .row_stride = 20},
                                     {.width = 7, .first = (int64_t{1} << 35) + 3, .row_stride = 19}}) {
      const at::Tensor mean = numbers_from(1, 0x1p-6, at::kBFloat16).to(place),
                       square = numbers_from(2, 0x1p-5, at::kBFloat16).abs_().to(place);
      const at::Tensor value = numbers_from(0, 0x1p-6, type()).to(place),
                       gradient = numbers_from(3, 0x1p-8, type()).to(place);
      all.push_back({value, gradient, mean, square, update,
                     AdamWRounding{{5, 1, 3}, {5, 2, 3}, {5, 3, 3}, 3, numbers}});
      states.insert(states.end(), {mean, square});
    }
    adamw(all);
    return states;
  };
  const auto want = run(at::kCPU);
  const LeavesScope scope(&table());
  const auto got = run(there());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i].to(at::kCPU), want[i])) << i;
  EXPECT_FALSE(at::equal(want[0], want[2])) << "other numbers, other bits";
}

TEST_P(LeavesOf, DropoutMasksToTheBit) {
  const int64_t far = (int64_t{1} << 35) + 3;
  const auto run = [&](at::Device place) {
    const auto options = at::TensorOptions(place).dtype(type());
    return std::vector<at::Tensor>{dropout_mask({70, 37}, 0.3, 1, 2, 3, 0, options),
                                   dropout_mask({5, 3, 7}, 0.45, ~0ULL, ~0ULL, ~0ULL, far, options),
                                   dropout_mask({9, 5}, 0.7, 1, 2, 3, 4, options, 11),
                                   dropout_mask({0, 5}, 0.7, 1, 2, 3, 4, options),
                                   uniform_noise({70, 37}, 1, 2, 3, far, options)};
  };
  const auto want = run(at::kCPU);
  const LeavesScope scope(&table());
  const auto got = run(there());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), want[i].scalar_type());
    EXPECT_TRUE(at::equal(got[i].to(at::kCPU), want[i])) << i;
  }
}

}  // namespace tessera::ops::leaf_tests
