#include "tessera/optim/schedule.h"

#include <cmath>

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

TEST(ScheduleTest, CosineStopsAtItsFloor) {
  EXPECT_NEAR((Schedule{ScheduleKind::Cosine, 1.0, 0, 10, 0.25}.at(10)), 0.25, 1e-12);
}

}  // namespace
}  // namespace tessera::optim
