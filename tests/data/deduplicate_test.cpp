#include "tessera/data/deduplicate.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/random.h"

namespace tessera::data {
namespace {

std::vector<int32_t> random_tokens(std::mt19937& random, size_t size) {
  std::vector<int32_t> tokens(size);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 5000);
  return tokens;
}

TEST(Deduplicate, EqualTokensAndLabelsOnce) {
  RowStore store;
  const auto ignored = static_cast<int32_t>(kIgnoreLabel);
  store.append(Row{{1, 2, 3}, {1, 2, 3}});
  store.append(Row{{1, 2, 3}, {ignored, 2, 3}});
  store.append(Row{{1, 2, 3}, {1, 2, 3}});
  store.append(Row{{1, 2}, {1, 2}});
  store.append(Row{{1, 2, 3}, {ignored, 2, 3}});
  EXPECT_THAT(find_duplicates(store), ::testing::ElementsAre(false, false, true, false, true));
}

TEST(Deduplicate, NearlyEqualRowsOnce) {
  std::mt19937 random(3);
  for (const double similarity : {0.8, 0.5}) {
    RowStore store;
    std::vector<bool> expected;
    int64_t close = 0;
    const auto add = [&](const std::vector<int32_t>& tokens, bool is_near) {
      store.append(tokens, tokens);
      expected.push_back(is_near);
    };
    for (int i = 0; i < 200; ++i) {
      std::vector<int32_t> tokens = random_tokens(random, 400);
      add(tokens, false);
      // One changed token is part of 5 of 396 sequences: 0.975 of all sequences are common.
      tokens[random() % tokens.size()] += 1;
      add(tokens, true);
      ++close;
      // So many tokens are changed that less than half of the sequences stay.
      for (size_t at = i % 12; at < tokens.size(); at += 8) tokens[at] += 1;
      add(tokens, false);
      add({1, 2, i}, false);
    }
    std::vector<bool> left_out = find_duplicates(store);
    EXPECT_EQ(std::ranges::count(left_out, true), 0);
    std::vector<bool> alone = left_out;
    find_near_duplicates(store, similarity, 3, left_out);
    EXPECT_EQ(left_out, expected) << similarity;
    find_near_duplicates(store, similarity, 1, alone);
    EXPECT_EQ(alone, left_out) << "whatever the threads";
    EXPECT_GT(close, 0);
  }
}

// Few pairs just above the similarity that is asked for are missed, whatever it is, and no pair below it is
// taken.
TEST(Deduplicate, FindsPairsAtEverySimilarity) {
  tessera::testing::Random random;
  constexpr int64_t kPairs = 150, kLength = 250, kShingles = kLength - 4;
  for (const double similarity : {0.1, 0.2, 0.52, 0.78, 0.97}) {
    for (const bool is_above : {true, false}) {
      // The first `common` tokens of two rows are the same, and so many sets of five less four.
      const double both = 2 * similarity * kShingles / (1 + similarity);
      const auto common = static_cast<int64_t>(is_above ? std::ceil(both) : std::floor(both) - 1) + 4;
      RowStore store;
      for (int64_t pair = 0; pair < kPairs; ++pair) {
        std::vector<int32_t> tokens(kLength);
        for (int32_t& token : tokens) token = static_cast<int32_t>(random.in(0, 100'000));
        store.append(tokens, tokens);
        for (int64_t i = common; i < kLength; ++i)
          tokens[i] = static_cast<int32_t>(random.in(100'001, 200'000));
        store.append(tokens, tokens);
      }
      std::vector<bool> left_out(2 * kPairs, false);
      find_near_duplicates(store, similarity, 2, left_out);
      const auto found = std::ranges::count(left_out, true);
      // At least 0.95 are expected: 0.85 are 5.6 standard deviations less.
      EXPECT_TRUE(is_above ? found > 0.85 * kPairs : found == 0) << found << " at " << similarity;
    }
  }
}

}  // namespace
}  // namespace tessera::data
