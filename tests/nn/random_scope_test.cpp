#include "tessera/nn/random_scope.h"

#include <cmath>
#include <tuple>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/nn/attention_dropout.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/embedding.h"

namespace tessera::nn {
namespace {

constexpr int64_t kWidth = 50;

at::Tensor noise_of(const RandomPlace& place, int64_t tokens, double alpha = 5.0) {
  const RandomScope scope(place);
  return embedding_noise_here(at::zeros({tokens, kWidth}, at::kDouble), alpha);
}

TEST(EmbeddingNoise, IsBoundedByTheLengthOfItsDocument) {
  const at::Tensor noise = noise_of({1, 2, 3, {}, {0, 4, 4, 104}}, 104);
  const auto largest = [&](int64_t first, int64_t count) {
    return noise.narrow(0, first, count).abs().max().item<double>();
  };
  const double of_short = 5.0 / std::sqrt(4.0 * kWidth), of_long = 5.0 / std::sqrt(100.0 * kWidth);
  EXPECT_LT(largest(0, 4), of_short);
  EXPECT_GT(largest(0, 4), 0.95 * of_short);
  EXPECT_LT(largest(4, 100), of_long);
  EXPECT_GT(largest(4, 100), 0.99 * of_long);
}

TEST(EmbeddingNoise, OfSomeTokensIsCutOutOfThatOfAll) {
  const std::vector<int64_t> starts = {0, 4, 30};
  const at::Tensor whole = noise_of({1, 2, 3, {}, starts}, 30);
  const TokenPart part = std::vector<TokenRun>{{2, 5}, {20, 3}};
  EXPECT_TRUE(at::equal(noise_of({1, 2, 3, part, starts}, 8),
                        at::cat({whole.narrow(0, 2, 5), whole.narrow(0, 20, 3)})));
  for (const RandomPlace& other : {RandomPlace{9, 2, 3, {}, starts}, RandomPlace{1, 9, 3, {}, starts},
                                   RandomPlace{1, 2, 9, {}, starts}}) {
    EXPECT_FALSE(at::equal(noise_of(other, 30), whole));
  }
  EXPECT_EQ(noise_of({1, 2, 3, {}, {0}}, 0).numel(), 0);
}

// A micro-batch of three sequences, the last of which has no end that counts, draws what each of them would.
TEST(RandomScope, ASequenceDrawsTheSameInAnyMicroBatch) {
  const std::vector<int64_t> starts = {0, 4, 4, 30};
  const auto mask_of = [](const RandomPlace& place, int64_t tokens) {
    const RandomScope scope(place);
    return dropout_mask_here(at::zeros({tokens, kWidth}, at::kDouble), 0.5, 7);
  };
  const RandomPlace all{1, 2, 3, {}, {0, 4, 9, 32}, starts};
  const RandomPlace first{1, 2, 3, {}, {0, 4}}, third{1, 2, 5, {}, {0, 5, 28}};
  const at::Tensor masks = mask_of(all, 32), noise = noise_of(all, 32);
  EXPECT_TRUE(at::equal(masks, at::cat({mask_of(first, 4), mask_of(third, 28)})));
  EXPECT_TRUE(at::equal(noise, at::cat({noise_of(first, 4), noise_of(third, 28)})));
  RandomPlace some = all;
  some.part = std::vector<TokenRun>{{20, 5}, {2, 6}};
  EXPECT_TRUE(at::equal(mask_of(some, 11), at::cat({masks.narrow(0, 20, 5), masks.narrow(0, 2, 6)})));
  const at::Tensor tokens = at::tensor(std::vector<int64_t>{10, 1, 5}, at::kLong);
  EXPECT_TRUE(at::equal(mask_of(place_of_rows(some, tokens, 11), 3),
                        at::cat({masks.narrow(0, 7, 1), masks.narrow(0, 21, 1), masks.narrow(0, 2, 1)})));
}

// Takes the last rows of a mask, as a rank of sequence parallelism takes its own.
class LastRows : public LayerParallel {
 public:
  explicit LastRows(int64_t count) : count_(count) {}
  at::Tensor output(const at::Tensor& y) const override { return y.narrow(0, y.size(0) - count_, count_); }

 private:
  int64_t count_;
};

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  constexpr int64_t kTokens = 2000;
  const at::Tensor x = at::ones({kTokens, kWidth}, at::kDouble);
  Dropout dropout(0.2, "here"), elsewhere(0.2, "there");
  EXPECT_TRUE(dropout.forward(x).is_same(x)) << "no scope: not a step of training";
  const RandomPlace place{1, 2, 3, {}, {0, kTokens}};
  const RandomScope scope(place);
  const at::Tensor y = dropout.forward(x);
  // Five standard deviations of the share are 0.0063.
  EXPECT_NEAR(y.eq(0.0).to(at::kDouble).mean().item<double>(), 0.2, 0.0063);
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.0063 / 0.8);
  EXPECT_EQ(y.max().item<double>(), 1.25);
  EXPECT_FALSE(at::equal(elsewhere.forward(x), y));
  dropout.set_parallel(std::make_shared<LastRows>(7));
  EXPECT_TRUE(at::equal(dropout.forward(x.narrow(0, 0, 7)), y.narrow(0, kTokens - 7, 7)));
  dropout.eval();
  EXPECT_TRUE(dropout.forward(x).is_same(x));
}

// A rank with some tokens and heads draws what one process does for them, in any order of the tokens.
TEST(AttentionDropout, DrawsBelongToTokensAndHeads) {
  const auto draws_of = [](const RandomPlace& place, int64_t tokens, int64_t first_head, int64_t heads) {
    const RandomScope scope(place);
    return AttentionDropout(0.3, 6, "here").of(at::zeros({tokens, heads, 2}), first_head).draws;
  };
  const RandomPlace all{1, 2, 3, {}, {0, 4, 30}, {0, 4, 30}};
  const at::Tensor whole = draws_of(all, 30, 0, 6);
  EXPECT_EQ(std::get<0>(at::_unique2(whole)).numel(), whole.numel());
  EXPECT_TRUE(at::equal(draws_of({1, 2, 4, {}, {0, 26}}, 26, 2, 3), whole.narrow(0, 4, 26).narrow(1, 2, 3)));
  RandomPlace some = all;
  some.part = std::vector<TokenRun>{{20, 5}, {2, 6}};
  const at::Tensor of_some = draws_of(some, 11, 0, 6);
  EXPECT_TRUE(at::equal(of_some, at::cat({whole.narrow(0, 20, 5), whole.narrow(0, 2, 6)})));
  const at::Tensor tokens = at::tensor(std::vector<int64_t>{10, 1}, at::kLong);
  EXPECT_TRUE(at::equal(draws_of(place_of_rows(some, tokens, 11), 2, 0, 6), of_some.index_select(0, tokens)));
  AttentionDropout dropout(0.3, 6, "here");
  EXPECT_FALSE(dropout.of(at::zeros({30, 6, 2}), 0).draws.defined()) << "no scope: not a step of training";
  const RandomScope scope(all);
  EXPECT_EQ(dropout.of(at::zeros({30, 6, 2}), 0).probability, 0.3);
  dropout.eval();
  EXPECT_EQ(dropout.of(at::zeros({30, 6, 2}), 0).probability, 0.0);
}

TEST(EmbeddingNoise, IsAddedInTrainingAlone) {
  Embedding embedding(7, kWidth, at::kDouble);
  embedding.weight = at::ones({7, kWidth}, at::kDouble);
  embedding.set_noise(5.0);
  const at::Tensor ids = at::tensor(std::vector<int64_t>{3, 1, 4}, at::kLong);
  embedding.eval();
  EXPECT_TRUE(at::equal(embedding.forward(ids), at::ones({3, kWidth}, at::kDouble)));
  embedding.train();
  EXPECT_THROW(embedding.forward(ids), Error) << "no scope";
  const RandomPlace place{1, 2, 3, {}, {0, 3}};
  const RandomScope scope(place);
  const at::Tensor noise = embedding_noise_here(at::zeros({3, kWidth}, at::kDouble), 5.0);
  EXPECT_TRUE(at::equal(embedding.forward(ids), 1.0 + noise));
  // Each holder of rows of the table adds the noise for its own rows.
  Embedding low(4, kWidth, at::kDouble), high(3, kWidth, at::kDouble);
  low.weight = at::ones({4, kWidth}, at::kDouble);
  high.weight = at::ones({3, kWidth}, at::kDouble);
  low.set_first_row(0);
  high.set_first_row(4);
  low.set_noise(5.0);
  high.set_noise(5.0);
  EXPECT_TRUE(at::equal(low.forward(ids) + high.forward(ids), 1.0 + noise));
}

}  // namespace
}  // namespace tessera::nn
