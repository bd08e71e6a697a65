#include "tessera/data/mix.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/expect_error.h"

namespace tessera::data {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

class MixTest : public ::testing::Test {
 protected:
  // Makes datasets of these sizes. Row n, counted over all datasets, has the token n.
  void make(const std::vector<int64_t>& sizes, const std::vector<double>& weights) {
    const auto store = std::make_shared<RowStore>();
    config_.datasets.clear();
    for (size_t i = 0; i < sizes.size(); ++i) {
      store->begin_dataset("d");
      config_.datasets.emplace_back().weight = weights[i];
      for (int64_t row = 0; row < sizes[i]; ++row) {
        rows_.rows.push_back(store->size());
        store->append(Row{{1, 2}, {1, 2}});
      }
    }
    rows_.store = store;
  }

  std::vector<int64_t> mix(const std::string& strategy, uint64_t seed = 1) {
    config_.mix_strategy = strategy;
    return mix_rows(rows_, config_, seed);
  }

  std::vector<int64_t> counts(const std::vector<int64_t>& rows) const {
    std::vector<int64_t> counts(config_.datasets.size(), 0);
    for (const int64_t row : rows) ++counts[static_cast<size_t>(rows_.store->dataset(row))];
    return counts;
  }

  config::DataConfig config_;
  RowSet rows_;
};

TEST_F(MixTest, ConcatTakesAllAsTheyAre) {
  make({3, 2}, {1, 5});
  EXPECT_EQ(mix("concat"), rows_.rows);
}

TEST_F(MixTest, UnderEndsWithTheFirstDatasetAndRepeatsNothing) {
  make({1000, 3000, 500}, {2, 1, 1});
  const auto mixed = mix("interleave_under");
  EXPECT_EQ(std::set<int64_t>(mixed.begin(), mixed.end()).size(), mixed.size());
  const auto taken = counts(mixed);
  EXPECT_TRUE(taken[0] == 1000 || taken[2] == 500);
  EXPECT_THAT(static_cast<double>(taken[0]) / static_cast<double>(mixed.size()), DoubleNear(0.5, 0.05));
  EXPECT_THAT(static_cast<double>(taken[1]) / static_cast<double>(mixed.size()), DoubleNear(0.25, 0.05));
  EXPECT_EQ(mix("interleave_under"), mixed);
  EXPECT_NE(mix("interleave_under", 2), mixed);
  // Each dataset's rows come in their order.
  int64_t last = -1;
  for (const int64_t row : mixed) {
    if (rows_.store->dataset(row) != 1) continue;
    EXPECT_GT(row, last);
    last = row;
  }
}

TEST_F(MixTest, OverTakesEveryRowAndRepeatsTheSmall) {
  make({1000, 100}, {1, 1});
  const auto mixed = mix("interleave_over");
  EXPECT_EQ(std::set<int64_t>(mixed.begin(), mixed.end()).size(), 1100U);
  const auto taken = counts(mixed);
  EXPECT_EQ(taken[0], 1000);
  EXPECT_THAT(static_cast<double>(taken[1]), DoubleNear(1000.0, 150.0));
  // No row of the second dataset is left, as if all of its rows had been duplicates.
  std::erase_if(rows_.rows, [](int64_t row) { return row >= 1000; });
  EXPECT_THAT(counts(mix("interleave_over")), ElementsAre(1000, 0));
}

TEST_F(MixTest, ProbabilitiesFollowWeightAndTemperature) {
  make({900, 100}, {1, 3});
  const std::vector<int64_t> sizes = {900, 100};
  EXPECT_THAT(mix_probabilities(config_, sizes),
              ElementsAre(DoubleNear(0.25, 1e-12), DoubleNear(0.75, 1e-12)));
  config_.mix_temperature = 1;
  EXPECT_THAT(mix_probabilities(config_, sizes),
              ElementsAre(DoubleNear(0.75, 1e-12), DoubleNear(0.25, 1e-12)));
  config_.mix_temperature = 2;
  EXPECT_THAT(mix_probabilities(config_, sizes), ElementsAre(DoubleNear(0.5, 1e-12), DoubleNear(0.5, 1e-12)));
}

TEST_F(MixTest, WeightsThatNeverEndAreRefused) {
  make({1000, 10}, {1e-6, 1});
  EXPECT_THAT(error_text("E-CONFIG-MIX", [&] { mix("interleave_over"); }),
              ::testing::HasSubstr("at most 1000 times the 1010 rows"));
}

}  // namespace
}  // namespace tessera::data
