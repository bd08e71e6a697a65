#include "tessera/data/deduplicate.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::data
