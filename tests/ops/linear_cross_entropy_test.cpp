#include "tessera/ops/linear_cross_entropy.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

Op with_terms(int64_t chunk, const LossTerms& terms) {
  return [=](const Inputs& in) {
    return linear_cross_entropy(in[0], in[1], in[2], chunk, nullptr, nullptr, terms);
  };
}
Op fused_loss(int64_t chunk = 0, double smoothing = 0.0) { return with_terms(chunk, {smoothing, 0.0}); }
at::Tensor loss_by_formula(const Inputs& in) {
  const at::Tensor logits = at::matmul(in[0], in[1].t());
  return at::nll_loss(at::log_softmax(logits, -1), in[2], {}, at::Reduction::Sum, kIgnoreLabel);
}

// Returns the loss of torch.nn.functional.cross_entropy(..., label_smoothing).
Op smoothed_formula(double smoothing) {
  return [smoothing](const Inputs& in) {
    return at::cross_entropy_loss(at::matmul(in[0], in[1].t()), in[2], {}, at::Reduction::Sum, kIgnoreLabel,
                                  smoothing);
  };
}

// Returns labels [tokens], of which every `ignored`-th is kIgnoreLabel (0: none is).
at::Tensor make_labels(int64_t tokens, int64_t vocabulary, int64_t ignored) {
  at::Tensor labels = (at::arange(tokens, at::kLong) * 7 + 3).remainder(vocabulary);
  if (ignored > 0) labels.masked_fill_(at::arange(tokens, at::kLong).remainder(ignored).eq(0), kIgnoreLabel);
  return labels;
}

Inputs make_loss_inputs(int64_t tokens, int64_t hidden, int64_t vocabulary, int64_t ignored, uint64_t seed) {
  return {random_tensor({tokens, hidden}, seed), random_tensor({vocabulary, hidden}, seed + 1),
          make_labels(tokens, vocabulary, ignored)};
}

TEST(LinearCrossEntropyTest, GradientsMatchCentralDifferences) {
  Inputs in = make_loss_inputs(5, 3, 7, 3, 1);
  in[0] = trained(in[0]);
  in[1] = trained(in[1]);
  gradcheck(fused_loss(2), in);
}

TEST(LinearCrossEntropyTest, EqualsTheFormulaForEveryChunkAndSubsetOfGradients) {
  for (const int64_t tokens : {1, 2, 13}) {
    for (const int64_t ignored : {0, 2, 3, 5}) {
      for (const int64_t chunk : {0, 1, 2, 3, 5, 100}) {
        SCOPED_TRACE(std::to_string(tokens) + " tokens, ignored " + std::to_string(ignored) + ", chunk " +
                     std::to_string(chunk));
        expect_same_for_subsets(fused_loss(chunk), loss_by_formula,
                                make_loss_inputs(tokens, 6, 11, ignored, 2), 2, 1e-11);
      }
    }
  }
}

TEST(LinearCrossEntropyTest, SmoothedLabelsEqualTheFormula) {
  for (const double smoothing : {0.1, 0.7}) {
    for (const int64_t ignored : {0, 3}) {
      for (const int64_t chunk : {0, 2}) {
        SCOPED_TRACE(std::to_string(smoothing) + ", ignored " + std::to_string(ignored));
        const Inputs in = make_loss_inputs(13, 6, 11, ignored, 2);
        expect_same_for_subsets(fused_loss(chunk, smoothing), smoothed_formula(smoothing), in, 2, 1e-11);
      }
    }
  }
  // The loss with smoothing differs from the loss without it.
  const Inputs in = make_loss_inputs(13, 6, 11, 0, 2);
  EXPECT_GT((fused_loss(0, 0.1)(in) - fused_loss()(in)).abs().item<double>(), 1e-3);
}

// The z-loss of PaLM, section 5, is the coefficient times the square of log Z, at positions with a label.
TEST(LinearCrossEntropyTest, ZLossEqualsTheFormula) {
  for (const double smoothing : {0.0, 0.2}) {
    for (const int64_t ignored : {0, 3}) {
      for (const int64_t chunk : {0, 2}) {
        SCOPED_TRACE(std::to_string(smoothing) + ", ignored " + std::to_string(ignored));
        const Op loss_by_formula = [&](const Inputs& in) {
          const at::Tensor log_z = at::logsumexp(at::matmul(in[0], in[1].t()), 1);
          return smoothed_formula(smoothing)(in) + 0.3 * (log_z.square() * in[2].ne(kIgnoreLabel)).sum();
        };
        const Inputs in = make_loss_inputs(13, 6, 11, ignored, 2);
        expect_same_for_subsets(with_terms(chunk, {smoothing, 0.3}), loss_by_formula, in, 2, 1e-11);
      }
    }
  }
  const Inputs in = make_loss_inputs(13, 6, 11, 0, 2);
  EXPECT_GT((with_terms(0, {0.0, 0.3})(in) - fused_loss()(in)).abs().item<double>(), 1e-3);
}

TEST(LinearCrossEntropyTest, CappedLogitsEqualTheFormula) {
  const LossTerms terms{.soft_cap = 0.7};
  const Op formula = [](const Inputs& in) {
    const at::Tensor logits = at::tanh(at::matmul(in[0], in[1].t()) / 0.7) * 0.7;
    return at::nll_loss(at::log_softmax(logits, -1), in[2], {}, at::Reduction::Sum, kIgnoreLabel);
  };
  for (const int64_t ignored : {0, 3}) {
    for (const int64_t chunk : {0, 2, 5}) {
      SCOPED_TRACE("ignored " + std::to_string(ignored) + ", chunk " + std::to_string(chunk));
      expect_same_for_subsets(with_terms(chunk, terms), formula, make_loss_inputs(13, 6, 11, ignored, 21), 2,
                              1e-12);
    }
  }
}

TEST(LinearCrossEntropyTest, ABiasOfTheLogitsEqualsTheFormula) {
  const LossTerms terms{.soft_cap = 0.7};
  for (const bool is_capped : {false, true}) {
    const Op formula = [=](const Inputs& in) {
      at::Tensor logits = at::linear(in[0], in[1], in[2]);
      if (is_capped) logits = at::tanh(logits / 0.7) * 0.7;
      return at::nll_loss(at::log_softmax(logits, -1), in[3], {}, at::Reduction::Sum, kIgnoreLabel);
    };
    for (const int64_t ignored : {0, 3}) {
      for (const int64_t chunk : {0, 2, 5}) {
        SCOPED_TRACE("ignored " + std::to_string(ignored) + ", chunk " + std::to_string(chunk));
        const Op biased = [=](const Inputs& in) {
          return linear_cross_entropy(in[0], in[1], in[3], chunk, nullptr, nullptr,
                                      is_capped ? terms : LossTerms{}, in[2]);
        };
        const Inputs plain = make_loss_inputs(13, 6, 11, ignored, 31);
        expect_same_for_subsets(biased, formula, {plain[0], plain[1], random_tensor({11}, 40), plain[2]}, 3,
                                1e-12);
      }
    }
  }
}

TEST(LinearCrossEntropyTest, VocabularyLongerThanABlockOfTheKernel) {
  expect_same_for_subsets(fused_loss(3), loss_by_formula, make_loss_inputs(7, 5, 2500, 3, 3), 2, 1e-11);
}

TEST(LinearCrossEntropyTest, NoLabelGivesZeroAndZeroGradients) {
  for (const int64_t tokens : {0, 4}) {
    Inputs in = make_loss_inputs(tokens, 6, 11, 0, 4);
    in[0] = trained(in[0]);
    in[1] = trained(in[1]);
    in[2].fill_(kIgnoreLabel);
    const Evaluation result = evaluate(fused_loss(), in);
    EXPECT_EQ(result.output.item<double>(), 0.0);
    expect_near(result.gradients[0], at::zeros({tokens, 6}, at::kDouble), 0, "hidden");
    expect_near(result.gradients[1], at::zeros({11, 6}, at::kDouble), 0, "weight");
  }
}

TEST(LinearCrossEntropyTest, TakesInputsThatAreNotContiguous) {
  const Inputs in = make_loss_inputs(9, 6, 11, 2, 5);
  const at::Tensor labels = at::stack({in[2], in[2]}, 1).select(1, 0);
  ASSERT_FALSE(labels.is_contiguous());
  expect_same(fused_loss(2), loss_by_formula,
              {trained(with_gaps(in[0])), trained(transposed_in_memory(in[1])), labels}, 1e-11);
}

TEST(LinearCrossEntropyTest, IgnoredPositionsAreNotEvenRead) {
  Inputs in = make_loss_inputs(6, 6, 11, 2, 6);
  const double clean = fused_loss()(in).item<double>();
  in[0].masked_fill_(in[2].eq(kIgnoreLabel).unsqueeze(1), NAN);
  in[0] = trained(in[0]);
  const Evaluation poisoned = evaluate(fused_loss(), in);
  EXPECT_EQ(poisoned.output.item<double>(), clean);
  EXPECT_TRUE(poisoned.gradients[0].isfinite().all().item<bool>());
}

TEST(LinearCrossEntropyTest, RefusesLabelsOutsideTheVocabulary) {
  for (const int64_t label : {-1, -101, 11, 1 << 30}) {
    Inputs in = make_loss_inputs(4, 6, 11, 0, 7);
    in[2][2] = label;
    try {
      fused_loss()(in);
      FAIL() << label;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_EQ(error.code(), "E-DATA-LABEL-RANGE");
      EXPECT_NE(std::string(error.what()).find("position 2"), std::string::npos);
    }
  }
}

TEST(LinearCrossEntropyTest, Float32IsNearFloat64) {
  Inputs in = make_loss_inputs(65, 64, 3001, 3, 8);
  in[0] = trained(in[0]);
  in[1] = trained(in[1]);
  expect_near_double(fused_loss(10), in, at::kFloat, 3e-6);
}

TEST(LinearCrossEntropyTest, Bfloat16GivesAFloat32Loss) {
  Inputs in = make_loss_inputs(33, 32, 501, 3, 9);
  in[0] = trained(in[0] * 0.5);
  in[1] = trained(in[1] * 0.5);
  EXPECT_EQ(
      fused_loss()({in[0].detach().to(at::kBFloat16), in[1].detach().to(at::kBFloat16), in[2]}).scalar_type(),
      at::kFloat);
  expect_near_double(fused_loss(10), in, at::kBFloat16, 3e-2);
}

TEST(LinearCrossEntropyTest, LargeLogitsStayFinite) {
  const at::Tensor hidden = trained(at::full({2, 1}, 1e4f)),
                   weight = trained(at::tensor({1.0f, -1.0f, 0.5f}).view({3, 1}));
  const Evaluation result = evaluate(fused_loss(), {hidden, weight, at::tensor({0, 1}, at::kLong)});
  EXPECT_FLOAT_EQ(result.output.item<float>(), 2e4f);
  EXPECT_TRUE(result.gradients[0].isfinite().all().item<bool>());
}

TEST(LinearCrossEntropyTest, BackwardRunsOnce) {
  Inputs in = make_loss_inputs(4, 6, 11, 0, 10);
  in[0] = trained(in[0]);
  const at::Tensor loss = fused_loss()(in);
  torch::autograd::grad({loss}, {in[0]}, {}, /*retain_graph=*/true);
  EXPECT_THROW(torch::autograd::grad({loss}, {in[0]}), Error);
}

TEST(LinearCrossEntropyTest, TheGradientOfTheWeightIsGivenAway) {
  Inputs in = make_loss_inputs(4, 6, 11, 0, 11);
  in[1] = trained(in[1]);
  const at::Tensor loss = fused_loss()(in);
  loss.backward();
  EXPECT_EQ(in[1].grad().use_count(), 1u);
  EXPECT_EQ(in[1].grad().storage().use_count(), 1u);
}

// Gives rows [bounds[i], bounds[i + 1]) of the projection to holder i, a thread, and expects the loss and
// gradients of the whole.
void expect_parts_equal_the_whole(const Inputs& in, const std::vector<int64_t>& bounds, int64_t chunk,
                                  double tolerance, const LossTerms& terms = {}) {
  const Inputs whole = {trained(in[0]), trained(in[1]), in[2]};
  const Evaluation want = evaluate(with_terms(chunk, terms), whole);
  const size_t parts = bounds.size() - 1;
  std::vector<Evaluation> got(parts);
  comm::run_fake_ranks(static_cast<int64_t>(parts), [&](const std::shared_ptr<comm::Communicator>& world) {
    const auto rank = static_cast<size_t>(world->rank());
    comm::ReduceOptions max;
    max.op = comm::ReduceOp::Max;
    const VocabularyPart part{bounds[rank], in[1].size(0),
                              [&](const at::Tensor& values) { world->all_reduce(values, false, max); },
                              [&](const at::Tensor& values) { world->all_reduce(values); }};
    const Op op = [&](const Inputs& own) {
      return linear_cross_entropy(own[0], own[1], own[2], chunk, &part, nullptr, terms);
    };
    const at::Tensor rows = in[1].narrow(0, bounds[rank], bounds[rank + 1] - bounds[rank]);
    got[rank] = evaluate(op, {trained(in[0]), trained(rows), in[2]});
    const at::NoGradGuard no_grad;
    expect_near(op({in[0], rows, in[2]}), got[rank].output, 0, "loss without gradients");
  });
  at::Tensor of_hidden = at::zeros_like(want.gradients[0]);
  std::vector<at::Tensor> of_weight;
  for (const Evaluation& one : got) {
    expect_near(one.output, want.output, tolerance, "loss");
    EXPECT_EQ(one.output.item<double>(), got[0].output.item<double>());
    of_hidden = of_hidden + one.gradients[0];
    of_weight.push_back(one.gradients[1]);
  }
  expect_near(of_hidden, want.gradients[0], tolerance, "gradient of hidden");
  expect_near(at::cat(of_weight), want.gradients[1], tolerance, "gradient of the weight");
}

TEST(LinearCrossEntropyTest, PartsOfTheVocabularyOn1To4RanksEqualTheWhole) {
  for (const std::vector<int64_t>& bounds :
       std::vector<std::vector<int64_t>>{{0, 11}, {0, 7, 11}, {0, 1, 4, 11}, {0, 6, 6, 9, 11}}) {
    for (const int64_t chunk : {0, 1, 4}) {
      for (const int64_t ignored : {0, 3}) {
        SCOPED_TRACE(std::to_string(bounds.size() - 1) + " parts, chunk " + std::to_string(chunk));
        for (const LossTerms& terms : {LossTerms{}, LossTerms{0.2, 0.0}, LossTerms{0.0, 0.3}}) {
          expect_parts_equal_the_whole(make_loss_inputs(13, 6, 11, ignored, 12), bounds, chunk, 1e-12, terms);
        }
      }
    }
  }
}

TEST(LinearCrossEntropyTest, PartsOn3RanksWithLogitsFarApart) {
  // The sums of exponentials would overflow, or vanish, without the maximum over all parts.
  Inputs in = make_loss_inputs(6, 4, 9, 0, 13);
  in[1].narrow(0, 0, 3).mul_(900.0);
  in[1].narrow(0, 3, 3).mul_(1e-3);
  expect_parts_equal_the_whole(in, {0, 3, 6, 9}, 0, 1e-12);
}

TEST(LinearCrossEntropyTest, PartsOn3RanksWithoutALabel) {
  Inputs in = make_loss_inputs(4, 4, 9, 0, 14);
  in[2].fill_(kIgnoreLabel);
  expect_parts_equal_the_whole(in, {0, 3, 6, 9}, 0, 0);
}

TEST(LinearCrossEntropyTest, Float32PartsOn3RanksAreNearTheWhole) {
  Inputs in = make_loss_inputs(65, 64, 3001, 3, 15);
  for (size_t i = 0; i < 2; ++i) in[i] = in[i].to(at::kFloat);
  expect_parts_equal_the_whole(in, {0, 1000, 1003, 3001}, 10, 3e-6);
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
  // The tokens are cut into a few equal chunks, not into full ones and a small rest.
  const int64_t chunk = linear_cross_entropy_chunk(1024, 49152, 4);
  EXPECT_LT(chunk, 1024);
  const int64_t chunks = (1024 + chunk - 1) / chunk;
  EXPECT_LT(chunks * chunk - 1024, chunks);
}

}  // namespace
}  // namespace tessera::ops
