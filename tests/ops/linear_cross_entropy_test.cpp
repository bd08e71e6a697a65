#include "tessera/ops/linear_cross_entropy.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

Op fused(int64_t chunk = 0) {
  return [chunk](const Inputs& in) { return linear_cross_entropy(in[0], in[1], in[2], chunk); };
}
at::Tensor formula(const Inputs& in) {
  const at::Tensor logits = at::matmul(in[0], in[1].t());
  return at::nll_loss(at::log_softmax(logits, -1), in[2], {}, at::Reduction::Sum, kIgnoreLabel);
}

// Every `ignored`-th label is kIgnoreLabel (0: none).
at::Tensor make_labels(int64_t tokens, int64_t vocabulary, int64_t ignored) {
  at::Tensor labels = (at::arange(tokens, at::kLong) * 7 + 3).remainder(vocabulary);
  if (ignored > 0) labels.masked_fill_(at::arange(tokens, at::kLong).remainder(ignored).eq(0), kIgnoreLabel);
  return labels;
}

Inputs make_inputs(int64_t tokens, int64_t hidden, int64_t vocabulary, int64_t ignored, uint64_t seed) {
  return {random_tensor({tokens, hidden}, seed), random_tensor({vocabulary, hidden}, seed + 1),
          make_labels(tokens, vocabulary, ignored)};
}

TEST(LinearCrossEntropyTest, GradientsMatchCentralDifferences) {
  Inputs in = make_inputs(5, 3, 7, 3, 1);
  in[0] = trained(in[0]);
  in[1] = trained(in[1]);
  gradcheck(fused(2), in);
}

TEST(LinearCrossEntropyTest, EqualsTheFormulaForEveryChunkAndSubsetOfGradients) {
  for (const int64_t tokens : {1, 2, 13}) {
    for (const int64_t ignored : {0, 2, 3, 5}) {
      for (const int64_t chunk : {0, 1, 2, 3, 5, 100}) {
        SCOPED_TRACE(std::to_string(tokens) + " tokens, ignored " + std::to_string(ignored) + ", chunk " +
                     std::to_string(chunk));
        expect_same_for_subsets(fused(chunk), formula, make_inputs(tokens, 6, 11, ignored, 2), 2, 1e-11);
      }
    }
  }
}

TEST(LinearCrossEntropyTest, VocabularyLongerThanABlockOfTheKernel) {
  expect_same_for_subsets(fused(3), formula, make_inputs(7, 5, 2500, 3, 3), 2, 1e-11);
}

TEST(LinearCrossEntropyTest, NoLabelGivesZeroAndZeroGradients) {
  for (const int64_t tokens : {0, 4}) {
    Inputs in = make_inputs(tokens, 6, 11, 0, 4);
    in[0] = trained(in[0]);
    in[1] = trained(in[1]);
    in[2].fill_(kIgnoreLabel);
    const Evaluation result = evaluate(fused(), in);
    EXPECT_EQ(result.output.item<double>(), 0.0);
    expect_near(result.gradients[0], at::zeros({tokens, 6}, at::kDouble), 0, "hidden");
    expect_near(result.gradients[1], at::zeros({11, 6}, at::kDouble), 0, "weight");
  }
}

TEST(LinearCrossEntropyTest, TakesInputsThatAreNotContiguous) {
  const Inputs in = make_inputs(9, 6, 11, 2, 5);
  const at::Tensor labels = at::stack({in[2], in[2]}, 1).select(1, 0);
  ASSERT_FALSE(labels.is_contiguous());
  expect_same(fused(2), formula, {trained(with_gaps(in[0])), trained(transposed_in_memory(in[1])), labels},
              1e-11);
}

TEST(LinearCrossEntropyTest, IgnoredPositionsAreNotEvenRead) {
  Inputs in = make_inputs(6, 6, 11, 2, 6);
  const double clean = fused()(in).item<double>();
  in[0].masked_fill_(in[2].eq(kIgnoreLabel).unsqueeze(1), NAN);
  in[0] = trained(in[0]);
  const Evaluation poisoned = evaluate(fused(), in);
  EXPECT_EQ(poisoned.output.item<double>(), clean);
  EXPECT_TRUE(poisoned.gradients[0].isfinite().all().item<bool>());
}

TEST(LinearCrossEntropyTest, RefusesLabelsOutsideTheVocabulary) {
  for (const int64_t label : {-1, -101, 11, 1 << 30}) {
    Inputs in = make_inputs(4, 6, 11, 0, 7);
    in[2][2] = label;
    try {
      fused()(in);
      FAIL() << label;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_EQ(error.code(), "E-DATA-LABEL-RANGE");
      EXPECT_NE(std::string(error.what()).find("position 2"), std::string::npos);
    }
  }
}

TEST(LinearCrossEntropyTest, Float32IsNearFloat64) {
  Inputs in = make_inputs(65, 64, 3001, 3, 8);
  in[0] = trained(in[0]);
  in[1] = trained(in[1]);
  expect_near_double(fused(10), in, at::kFloat, 3e-6);
}

TEST(LinearCrossEntropyTest, Bfloat16GivesAFloat32Loss) {
  Inputs in = make_inputs(33, 32, 501, 3, 9);
  in[0] = trained(in[0] * 0.5);
  in[1] = trained(in[1] * 0.5);
  EXPECT_EQ(
      fused()({in[0].detach().to(at::kBFloat16), in[1].detach().to(at::kBFloat16), in[2]}).scalar_type(),
      at::kFloat);
  expect_near_double(fused(10), in, at::kBFloat16, 3e-2);
}

TEST(LinearCrossEntropyTest, LargeLogitsStayFinite) {
  const at::Tensor hidden = trained(at::full({2, 1}, 1e4f)),
                   weight = trained(at::tensor({1.0f, -1.0f, 0.5f}).view({3, 1}));
  const Evaluation result = evaluate(fused(), {hidden, weight, at::tensor({0, 1}, at::kLong)});
  EXPECT_FLOAT_EQ(result.output.item<float>(), 2e4f);
  EXPECT_TRUE(result.gradients[0].isfinite().all().item<bool>());
}

TEST(LinearCrossEntropyTest, BackwardRunsOnce) {
  Inputs in = make_inputs(4, 6, 11, 0, 10);
  in[0] = trained(in[0]);
  const at::Tensor loss = fused()(in);
  torch::autograd::grad({loss}, {in[0]}, {}, /*retain_graph=*/true);
  EXPECT_THROW(torch::autograd::grad({loss}, {in[0]}), Error);
}

TEST(LinearCrossEntropyTest, TheGradientOfTheWeightIsGivenAway) {
  Inputs in = make_inputs(4, 6, 11, 0, 11);
  in[1] = trained(in[1]);
  const at::Tensor loss = fused()(in);
  loss.backward();
  EXPECT_EQ(in[1].grad().use_count(), 1u);
  EXPECT_EQ(in[1].grad().storage().use_count(), 1u);
}

TEST(LinearCrossEntropyChunkTest, LogitsStayBounded) {
  constexpr int64_t kLimit = int64_t{112} << 20;
  for (const int64_t positions : {0, 1, 2, 100, 341, 1024, 16384, 1 << 24}) {
    for (const int64_t vocabulary : {1, 1000, 49152, 128256, 262144, 30000000}) {
      for (const int64_t bytes : {2, 4, 8}) {
        const int64_t chunk = linear_cross_entropy_chunk(positions, vocabulary, bytes);
        ASSERT_GE(chunk, 1);
        ASSERT_LE(chunk, std::max<int64_t>(1, positions));
        if (chunk > 1) {
          ASSERT_LE(chunk * vocabulary * bytes, kLimit) << positions << " " << vocabulary << " " << bytes;
        }
      }
    }
  }
  // A few equal chunks, not one full and one sliver.
  const int64_t chunk = linear_cross_entropy_chunk(1024, 49152, 4);
  EXPECT_LT(chunk, 1024);
  const int64_t chunks = (1024 + chunk - 1) / chunk;
  EXPECT_LT(chunks * chunk - 1024, chunks);
}

}  // namespace
}  // namespace tessera::ops
