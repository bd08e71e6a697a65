// Tests that leaps of the loss and of the gradient norm are seen, and that nothing else is taken for one.
#include "tessera/train/step/step_guard.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/io/expect_error.h"

namespace tessera::train {
namespace {

using Verdict = StepGuard::Verdict;

config::Recipe recipe_of(config::SpikeAction action) {
  config::Recipe recipe;
  recipe.spike_action = action;
  return recipe;
}

// Parts of a loss that falls with noise, and of its gradient norm.
double wave(double scale, double pace, int64_t step) {
  return scale * std::sin(pace * static_cast<double>(step));
}
double loss_at(int64_t step) {
  return 2.0 + std::exp(-0.01 * static_cast<double>(step)) + wave(0.05, 9.0, step);
}
double norm_at(int64_t step) { return 1.0 + wave(0.3, 7.0, step); }

TEST(StepGuardTest, AnOrdinaryRunIsLeftAlone) {
  StepGuard guard;
  const config::Recipe recipe = recipe_of(config::SpikeAction::Skip);
  for (int64_t step = 1; step <= 600; ++step)
    EXPECT_EQ(guard.judge(recipe, step, loss_at(step), norm_at(step)), Verdict::Update) << step;
}

TEST(StepGuardTest, ALeapIsSeenAndIsTold) {
  const std::pair<config::SpikeAction, Verdict> cases[] = {{config::SpikeAction::Warn, Verdict::Update},
                                                           {config::SpikeAction::Skip, Verdict::Skip},
                                                           {config::SpikeAction::Rollback, Verdict::RollBack},
                                                           {config::SpikeAction::Off, Verdict::Update}};
  for (const auto& [action, verdict] : cases) {
    StepGuard guard;
    const config::Recipe recipe = recipe_of(action);
    // The first steps are too early to judge.
    EXPECT_EQ(guard.judge(recipe, 1, 2.0, 1.0), Verdict::Update);
    EXPECT_EQ(guard.judge(recipe, 2, 2.9, 1.0), Verdict::Update);
    for (int64_t step = 3; step <= 100; ++step) guard.judge(recipe, step, loss_at(step), norm_at(step));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(guard.judge(recipe, 101, 30.0, 1.0), verdict);
    EXPECT_EQ(guard.judge(recipe, 102, loss_at(102), 1.0), Verdict::Update);
    EXPECT_EQ(guard.judge(recipe, 103, loss_at(103), 50.0), verdict);
    const std::string told = ::testing::internal::GetCapturedStderr();
    if (action == config::SpikeAction::Off) {
      EXPECT_EQ(told, "");
      continue;
    }
    EXPECT_THAT(told, ::testing::HasSubstr("step 101: the loss spikes to 30 from about 2."));
    EXPECT_THAT(told, ::testing::HasSubstr("step 103: the gradient norm spikes to 50 from about 1."));
  }
}

TEST(StepGuardTest, ANewLevelIsLearnt) {
  StepGuard guard;
  const config::Recipe recipe = recipe_of(config::SpikeAction::Skip);
  for (int64_t step = 1; step <= 100; ++step) guard.judge(recipe, step, 1.0 + wave(0.01, 1.0, step), 1.0);
  int64_t skipped = 0;
  for (int64_t step = 101; step <= 200; ++step)
    skipped += guard.judge(recipe, step, 3.0 + wave(0.01, 1.0, step), 1.0) == Verdict::Skip ? 1 : 0;
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 30);
}

TEST(StepGuardTest, TheWatchdogEndsARunOfHighLosses) {
  config::Recipe recipe = recipe_of(config::SpikeAction::Off);
  recipe.loss_watchdog_threshold = 5.0;
  recipe.loss_watchdog_patience = 3;
  StepGuard guard;
  for (const double loss : {6.0, 6.0, 4.0, 7.0, 7.0}) guard.judge(recipe, 1, loss, 1.0);
  testing::expect_error(ErrorKind::Numerics, {"E-NUMERICS-LOSS-WATCHDOG", "step 9", "got 8, need at most 5"},
                        [&] { guard.judge(recipe, 9, 8.0, 1.0); });
}

TEST(StepGuardTest, GoesOnThroughJson) {
  StepGuard one;
  config::Recipe recipe = recipe_of(config::SpikeAction::Skip);
  recipe.loss_watchdog_threshold = 2.9;
  recipe.loss_watchdog_patience = 1000;
  for (int64_t step = 1; step <= 150; ++step) one.judge(recipe, step, loss_at(step), norm_at(step));
  StepGuard other = StepGuard::from_json(nlohmann::ordered_json::parse(one.to_json().dump()));
  EXPECT_EQ(other.to_json(), one.to_json());
  for (int64_t step = 151; step <= 170; ++step) {
    const double loss = step == 160 ? 40.0 : loss_at(step);
    EXPECT_EQ(other.judge(recipe, step, loss, norm_at(step)), one.judge(recipe, step, loss, norm_at(step)));
  }
  EXPECT_EQ(other.to_json(), one.to_json());
}

TEST(StepGuardTest, RefusesOnlyWhereTheRecipeSaysSo) {
  config::Recipe recipe;
  recipe.spike_action = config::SpikeAction::Warn;
  EXPECT_FALSE(StepGuard::may_refuse(recipe));
  for (const auto action : {config::SpikeAction::Skip, config::SpikeAction::Rollback}) {
    recipe.spike_action = action;
    EXPECT_TRUE(StepGuard::may_refuse(recipe));
  }
  recipe.spike_action = config::SpikeAction::Off;
  EXPECT_FALSE(StepGuard::may_refuse(recipe));
  recipe.loss_watchdog_threshold = 5.0;
  EXPECT_TRUE(StepGuard::may_refuse(recipe));
}

}  // namespace
}  // namespace tessera::train
