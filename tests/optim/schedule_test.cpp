#include "tessera/optim/schedule.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::optim {
namespace {

// The expected values are those of transformers.get_cosine_schedule_with_warmup(num_warmup_steps=3,
// num_training_steps=13), with peak 1.
TEST(ScheduleTest, CosineWithWarmup) {
  const Schedule schedule{ScheduleKind::Cosine, 1.0, 3, 13, 0.0};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.0);
  EXPECT_DOUBLE_EQ(schedule.at(1), 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(schedule.at(3), 1.0);
  EXPECT_NEAR(schedule.at(8), 0.5, 1e-12);
  EXPECT_NEAR(schedule.at(10), 0.2061073738537635, 1e-12);
  EXPECT_NEAR(schedule.at(13), 0.0, 1e-12);
  EXPECT_NEAR(schedule.at(20), 0.0, 1e-12);
}

TEST(ScheduleTest, LinearAndConstant) {
  EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::Linear, 2.0, 0, 10, 0.0}.at(5)), 1.0);
  EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::Linear, 2.0, 0, 10, 0.1}.at(10)), 0.2);
  EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::Constant, 2.0, 4, 10, 0.0}.at(2)), 1.0);
  EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::Constant, 2.0, 4, 10, 0.0}.at(9)), 2.0);
}

// The expected values are those of deepspeed/runtime/lr_schedules.py with warmup_num_steps=4,
// total_num_steps=12 and cos_min_ratio=0.1, as its engine sets them for each update.
TEST(ScheduleTest, ThoseOfDeepSpeed) {
  Schedule schedule{ScheduleKind::WarmupLr, 1.0, 4, 12, 0.1};
  const auto expect = [&](const std::vector<double>& rates) {
    for (size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(schedule.at(static_cast<int64_t>(i)), rates[i], 1e-11) << i;
  };
  schedule.rise = RampKind::Log;
  expect({0.0, 0.0, 0.5, 0.792481250361, 1.0, 1.0, 1.0, 1.0});
  schedule.kind = ScheduleKind::WarmupCosineLr;
  expect({0.0, 0.0, 0.5, 0.792481250361, 1.0, 0.96574578963, 0.868198051534, 0.722207544564, 0.55,
          0.377792455436, 0.231801948466, 0.13425421037, 0.1});
  schedule.kind = ScheduleKind::WarmupDecayLr;
  schedule.rise = RampKind::Linear;
  expect({0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125});
}

// Expects the values of deepspeed/runtime/lr_schedules.py, LRRangeTest: a share of the first rate is added
// every `range_steps` updates, or little by little.
TEST(ScheduleTest, RangeTestRisesFromItsFirstRate) {
  Schedule schedule{ScheduleKind::RangeTest, 1e-3, 0, 9, 0.0};
  schedule.range_steps = 4;
  schedule.range_rate = 2.0;
  for (const auto& [step, rate] :
       {std::pair<int64_t, double>{0, 1e-3}, {1, 1.5e-3}, {4, 3e-3}, {6, 4e-3}, {8, 5e-3}}) {
    EXPECT_NEAR(schedule.at(step), rate, 1e-15) << step;
  }
  schedule.range_has_stairs = true;
  for (const auto& [step, rate] :
       {std::pair<int64_t, double>{0, 1e-3}, {3, 1e-3}, {4, 3e-3}, {7, 3e-3}, {8, 5e-3}}) {
    EXPECT_NEAR(schedule.at(step), rate, 1e-15) << step;
  }
  schedule.range_end = 10.0;
  for (int64_t step = 0; step <= 8; ++step) {
    EXPECT_NEAR(schedule.at(step), std::pow(10.0, -3.0 + 0.5 * static_cast<double>(step)),
                1e-12 * schedule.at(step));
  }
}

TEST(ScheduleTest, CosineStopsAtItsFloor) {
  EXPECT_NEAR((Schedule{ScheduleKind::Cosine, 1.0, 0, 10, 0.25}.at(10)), 0.25, 1e-12);
}

}  // namespace
}  // namespace tessera::optim
