// Tests that a rank which is slow all the time is named, and one that is slow now and then is not.
#include "tessera/measure/straggler_watch.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/testing/random.h"

namespace tessera::measure {
namespace {

RankTimes times(double forward, double backward, double wait = 0.0) {
  RankTimes result;
  result.sections[static_cast<size_t>(StepSection::Forward)] = forward;
  result.sections[static_cast<size_t>(StepSection::Backward)] = backward;
  result.sections[static_cast<size_t>(StepSection::Wait)] = wait;
  return result;
}

// Returns the times of a rank of a stage: `layers` layers of `layer_s` seconds each, and rest_s seconds for
// the embedding or the loss.
RankTimes stage(double layers, double layer_s, double rest_s) {
  RankTimes result = times(rest_s, 2.0 * (layers * layer_s + rest_s));
  result.sections[static_cast<size_t>(StepSection::Layers)] = layers * layer_s;
  result.layers = layers;
  return result;
}

const RankTimes kUsual = times(0.1, 0.2, 0.3), kSlow = times(0.1, 0.8);

TEST(StragglerWatchTest, NamesARankThatIsSlowInThreeWindowsAndWhereItsTimeGoes) {
  StragglerWatch watch({0, 0, 0});
  const std::vector<RankTimes> ranks = {kUsual, kUsual, kSlow};
  EXPECT_FALSE(watch.judge(ranks, 4.0));
  EXPECT_FALSE(watch.judge(ranks, 4.0));
  for (int window = 0; window < 2; ++window) {
    const auto found = watch.judge(ranks, 4.0);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, 2);
    EXPECT_EQ(found->section, StepSection::Backward);
    EXPECT_NEAR(found->slowdown, 3.0, 1e-9);
    EXPECT_NEAR(found->seconds, 0.9, 1e-9);
    EXPECT_NEAR(found->others_s, 0.3, 1e-9);
  }
  EXPECT_FALSE(watch.judge({kUsual, kUsual, kUsual}, 4.0));
  EXPECT_FALSE(watch.judge(ranks, 4.0));
}

TEST(StragglerWatchTest, OneOfTwoRanksIsEnough) {
  StragglerWatch watch({0, 0});
  for (int window = 0; window < 2; ++window) EXPECT_FALSE(watch.judge({kSlow, kUsual}, 4.0));
  EXPECT_EQ(watch.judge({kSlow, kUsual}, 4.0).value().rank, 0);
}

TEST(StragglerWatchTest, WaitingIsNoWork) {
  StragglerWatch watch({0, 0, 0});
  for (int window = 0; window < 5; ++window)
    EXPECT_FALSE(watch.judge({times(0.1, 0.2, 9.0), times(0.1, 0.2), times(0.1, 0.2)}, 4.0));
}

// Stages differ in their numbers of layers, and in the embedding or the loss that they run: a longer stage
// is no straggler.
TEST(StragglerWatchTest, StagesOfAPipelineAreNotComparedByTheirSteps) {
  StragglerWatch watch({0, 0, 1, 1});
  for (int window = 0; window < 5; ++window) EXPECT_FALSE(watch.judge({kUsual, kUsual, kSlow, kSlow}, 4.0));
  StragglerWatch alone({0, 1, 2});
  for (int window = 0; window < 5; ++window)
    EXPECT_FALSE(alone.judge({stage(9, 0.01, 0.02), stage(8, 0.011, 0.0), stage(3, 0.009, 0.9)}, 4.0));
}

TEST(StragglerWatchTest, ARankIsComparedWithOtherStagesByTheForwardOfALayer) {
  for (size_t slow = 0; slow < 3; ++slow) {
    SCOPED_TRACE(slow);
    std::vector<RankTimes> ranks = {stage(9, 0.01, 0.02), stage(8, 0.011, 0.0), stage(3, 0.009, 0.9)};
    ranks[slow] = stage(ranks[slow].layers, 0.03, 0.0);
    StragglerWatch watch({0, 1, 2});
    std::optional<Straggler> found;
    for (int window = 0; window < 3; ++window) {
      EXPECT_FALSE(found) << window;
      found = watch.judge(ranks, 4.0);
    }
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, static_cast<int64_t>(slow));
    EXPECT_TRUE(found->is_of_layer);
    EXPECT_NEAR(found->seconds, 0.03, 1e-9);
    EXPECT_STREQ(section_name(found->section), "forward");
  }
  // A slow machine holds a whole stage: one of its ranks is named.
  StragglerWatch watch({0, 0, 1, 1});
  const std::vector<RankTimes> ranks = {stage(4, 0.01, 0.1), stage(4, 0.01, 0.1), stage(4, 0.03, 0.0),
                                        stage(4, 0.031, 0.0)};
  for (int window = 0; window < 2; ++window) EXPECT_FALSE(watch.judge(ranks, 4.0));
  EXPECT_EQ(watch.judge(ranks, 4.0).value().rank, 3);
}

// The slow rank is another one in every window, or slow in one window of three; and differences of some
// microseconds do not count.
TEST(StragglerWatchTest, WhatComesAndGoesIsNoStraggler) {
  StragglerWatch watch({0, 0, 0});
  for (size_t window = 0; window < 30; ++window) {
    std::vector<RankTimes> ranks(3, kUsual);
    if (window % 3 != 0) ranks[window / 3 % 3] = kSlow;
    EXPECT_FALSE(watch.judge(ranks, 4.0)) << window;
  }
  StragglerWatch fast({0, 0, 0});
  for (int window = 0; window < 10; ++window)
    EXPECT_FALSE(fast.judge({times(1e-4, 1e-4), times(1e-4, 1e-4), times(1e-3, 1e-4)}, 4.0));
}

TEST(StragglerWatchTest, NoiseIsNoStraggler) {
  testing::Random numbers;
  std::mt19937_64& random = numbers.engine();
  std::uniform_real_distribution<double> noise(0.8, 1.15);
  StragglerWatch watch({0, 0, 0, 0});
  for (int window = 0; window < 1000; ++window) {
    std::vector<RankTimes> ranks;
    for (int rank = 0; rank < 4; ++rank) ranks.push_back(times(0.1 * noise(random), 0.2 * noise(random)));
    EXPECT_FALSE(watch.judge(ranks, 4.0));
  }
}

TEST(StragglerWatchTest, AWindowTakesSomeSecondsAndSomeSteps) {
  StragglerWatch watch({0, 0});
  const std::vector<RankTimes> ranks(2, kUsual);
  EXPECT_EQ(watch.num_steps(), StragglerWatch::kLeastSteps);
  (void)watch.judge(ranks, 0.005);
  EXPECT_EQ(watch.num_steps(), 50);
  for (int window = 0; window < 6; ++window)
    (void)watch.judge(ranks, 0.001 * static_cast<double>(watch.num_steps()));
  EXPECT_EQ(watch.num_steps(), 4000);
  (void)watch.judge(ranks, 400.0);
  EXPECT_EQ(watch.num_steps(), 40);
  (void)watch.judge(ranks, 400.0);
  EXPECT_EQ(watch.num_steps(), StragglerWatch::kLeastSteps);
}

// Short windows, at the beginning, accuse nobody.
TEST(StragglerWatchTest, TheFirstStepsAreNotJudged) {
  StragglerWatch watch({0, 0, 0});
  for (int window = 0; window < 6; ++window) EXPECT_FALSE(watch.judge({kUsual, kUsual, kSlow}, 0.5));
}

}  // namespace
}  // namespace tessera::measure
