#include "tessera/nn/alibi.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/nn/attention.h"
#include "tessera/nn/materialize.h"

namespace tessera::nn {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

double half_to_the(double power) { return std::exp2(-power); }

// The lists are those that Transformers computes for BLOOM and MPT.
TEST(Alibi, SlopesAreThoseOfTheModels) {
  const auto eq = [](double power) { return DoubleEq(half_to_the(power)); };
  EXPECT_THAT(alibi_slopes(4), ElementsAre(eq(2), eq(4), eq(6), eq(8)));
  EXPECT_THAT(alibi_slopes(6), ElementsAre(eq(2), eq(4), eq(6), eq(8), eq(1), eq(3)));
  EXPECT_THAT(alibi_slopes(1), ElementsAre(eq(8)));
  EXPECT_THAT(mpt_alibi_slopes(4, 8.0), ElementsAre(eq(2), eq(4), eq(6), eq(8)));
  EXPECT_THAT(mpt_alibi_slopes(3, 6.0), ElementsAre(eq(3), eq(6), eq(1.5)));
}

TEST(Alibi, TablesHoldSlopesTimesPositions) {
  const Alibi plain({.slopes = {0.5, 0.3}}), rounded({.slopes = {0.5, 0.3}, .is_rounded = true});
  const at::Tensor positions = at::tensor({0, 1, 2, 0, 1001}, at::kLong);
  const at::Tensor table = plain.table(positions, at::kDouble);
  EXPECT_EQ(table.scalar_type(), at::kDouble);
  EXPECT_DOUBLE_EQ(table[2][1].item<double>(), 0.6);
  EXPECT_DOUBLE_EQ(table[3][0].item<double>(), 0.0);
  EXPECT_EQ(plain.table(positions, at::kBFloat16).scalar_type(), at::kFloat);
  // bfloat16 has 1000 in the place of 1001, and 0.30078125 in that of 0.3.
  const at::Tensor there = rounded.table(positions, at::kDouble);
  EXPECT_DOUBLE_EQ(there[4][0].item<double>(), 500.0);
  EXPECT_DOUBLE_EQ(there[1][1].item<double>(), 0.30078125);
}

// The elements of a narrow type add up to what the bias is in a wide one.
TEST(Alibi, BiasesAreExactInBfloat16) {
  const at::Tensor q = at::randn({5, 2, 4}, at::kBFloat16), k = at::randn({5, 2, 4}, at::kBFloat16);
  const at::Tensor bias = Alibi({.slopes = {0.7071, 0.0123}}).table(at::arange(30000, 30005), at::kBFloat16);
  const auto heads = with_biases(q, k, k, bias);
  EXPECT_EQ(heads[0].size(2), 4 + kAlibiElements);
  EXPECT_EQ(heads[1].scalar_type(), at::kBFloat16);
  const at::Tensor grown = (heads[0].to(at::kDouble) * heads[1].to(at::kDouble)).sum(2),
                   own = (q.to(at::kDouble) * k.to(at::kDouble)).sum(2);
  EXPECT_LT((grown - own - bias).abs().max().item<double>(), 30000 * std::exp2(-22));
  EXPECT_TRUE(heads[2].narrow(2, 4, kAlibiElements).eq(0).all().item<bool>());
}

constexpr int64_t kBiasedHidden = 10, kBiasedHeads = 3, kBiasedDim = 6, kBiasedTokens = 9,
                  kSecondStart = 4;  // of the second document

SequenceContext two_documents() {
  SequenceContext context;
  context.document_starts = {0, kSecondStart, kBiasedTokens};
  context.key_bias =
      Alibi({.slopes = alibi_slopes(kBiasedHeads)})
          .table(at::cat({at::arange(kSecondStart), at::arange(kBiasedTokens - kSecondStart)}), at::kDouble);
  return context;
}

// Computes attention from its definition, with a bias of every score by the distance of query and key.
at::Tensor biased_by_definition(const Attention& layer, const at::Tensor& x, double factor) {
  const auto heads = [&](const std::shared_ptr<Linear>& projection) {
    return at::linear(x, projection->weight).view({kBiasedTokens, kBiasedHeads, kBiasedDim}).transpose(0, 1);
  };
  const at::Tensor places = at::arange(kBiasedTokens, at::kDouble),
                   documents = at::arange(kBiasedTokens).ge(kSecondStart);
  const at::Tensor distance = places.unsqueeze(1) - places.unsqueeze(0);
  const at::Tensor slopes = at::tensor(alibi_slopes(kBiasedHeads), at::kDouble).view({kBiasedHeads, 1, 1});
  const at::Tensor hidden = distance.lt(0).logical_or(documents.unsqueeze(1).ne(documents.unsqueeze(0)));
  const at::Tensor scores =
      at::matmul(heads(layer.q_proj), heads(layer.k_proj).transpose(1, 2)) / std::sqrt(kBiasedDim * 1.0) -
      factor * slopes * distance;
  const at::Tensor shares =
      at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  return at::linear(at::matmul(shares, heads(layer.v_proj)).transpose(0, 1).reshape({kBiasedTokens, -1}),
                    layer.o_proj->weight);
}

TEST(Alibi, AttentionWithBiasesIsThatOfTheDefinition) {
  for (const bool scales_bias : {false, true}) {
    SCOPED_TRACE(scales_bias);
    Attention layer({.hidden_size = kBiasedHidden,
                     .num_heads = kBiasedHeads,
                     .num_kv_heads = kBiasedHeads,
                     .head_dim = kBiasedDim,
                     .has_key_bias = true,
                     .scales_bias = scales_bias},
                    0, at::kDouble);
    at::manual_seed(1);
    for (auto& item : layer.named_parameters())
      materialize(item.value(), at::randn(item.value().sizes(), at::kDouble));
    EXPECT_EQ(layer.cached_heads().head_dim, kBiasedDim + kAlibiElements);
    const at::Tensor x = at::randn({kBiasedTokens, kBiasedHidden}, at::kDouble);
    const double factor = scales_bias ? 1.0 / std::sqrt(kBiasedDim * 1.0) : 1.0;
    const at::Tensor got = layer.forward(x, two_documents()), want = biased_by_definition(layer, x, factor);
    EXPECT_LT((got - want).abs().max().item<double>(), 1e-12);
    const auto gradients = [&](const at::Tensor& y) {
      return torch::autograd::grad({y.sin().sum()}, {layer.q_proj->weight, layer.k_proj->weight});
    };
    const auto of_got = gradients(got), of_want = gradients(want);
    for (size_t i = 0; i < of_got.size(); ++i)
      EXPECT_LT((of_got[i] - of_want[i]).abs().max().item<double>(), 1e-11);
  }
}

// The heads of a rank follow those of the ranks before it.
TEST(Alibi, AttentionTakesTheBiasesOfItsOwnHeads) {
  const auto layer_of = [](int64_t heads) {
    return std::make_shared<Attention>(AttentionOptions{.hidden_size = kBiasedHidden,
                                                        .num_heads = heads,
                                                        .num_kv_heads = heads,
                                                        .head_dim = kBiasedDim,
                                                        .has_key_bias = true},
                                       0, at::kDouble);
  };
  const auto whole = layer_of(kBiasedHeads), part = layer_of(1);
  at::manual_seed(2);
  for (auto& item : whole->named_parameters())
    materialize(item.value(), at::randn(item.value().sizes(), at::kDouble));
  const at::Tensor x = at::randn({kBiasedTokens, kBiasedHidden}, at::kDouble);
  at::Tensor sum = at::zeros({kBiasedTokens, kBiasedHidden}, at::kDouble);
  for (int64_t head = 0; head < kBiasedHeads; ++head) {
    const auto rows = [&](const std::shared_ptr<Linear>& from, int64_t dim) {
      return from->weight.detach().narrow(dim, head * kBiasedDim, kBiasedDim).contiguous();
    };
    materialize(part->q_proj->weight, rows(whole->q_proj, 0));
    materialize(part->k_proj->weight, rows(whole->k_proj, 0));
    materialize(part->v_proj->weight, rows(whole->v_proj, 0));
    materialize(part->o_proj->weight, rows(whole->o_proj, 1));
    part->q_proj->set_first_output(head * kBiasedDim);
    const at::NoGradGuard no_grad;
    sum = sum + part->forward(x, two_documents());
  }
  const at::NoGradGuard no_grad;
  EXPECT_LT((sum - whole->forward(x, two_documents())).abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace tessera::nn
