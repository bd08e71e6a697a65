#include "tessera/train/step/run_schedule.h"

#include <algorithm>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"

#include "tests/testing/paths.h"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;

TEST(RunSchedule, WarmUp) {
  config::Recipe recipe;
  recipe.learning_rate = 1.0;
  const auto warmup = [&](int64_t total) { return make_schedule(recipe, total, 1).warmup_steps; };
  // If no key says otherwise, the warmup is 3 % of the steps, at most 100.
  EXPECT_EQ(warmup(33), 0);
  EXPECT_EQ(warmup(34), 2);
  EXPECT_EQ(warmup(200), 6);
  EXPECT_EQ(warmup(1000000), 100);
  recipe.warmup_steps = 0;
  EXPECT_EQ(warmup(200), 0);
  recipe.warmup_ratio = 0.1;
  EXPECT_EQ(warmup(9), 0);
  EXPECT_EQ(warmup(10), 2);
  EXPECT_EQ(warmup(25), 2);
  EXPECT_EQ(warmup(39), 3);
  recipe.warmup_ratio = 0.0;
  EXPECT_EQ(warmup(200), 0);
  recipe.warmup_steps = 1;
  EXPECT_EQ(warmup(200), 2);
  recipe.warmup_steps = 0.031;
  EXPECT_EQ(warmup(200), 7);
  recipe.warmup_steps = 7;
  EXPECT_EQ(warmup(200), 7);
  recipe.lr_scheduler = ScheduleKind::Constant;
  EXPECT_EQ(warmup(200), 0);
  recipe.lr_scheduler = ScheduleKind::ConstantWithWarmup;
  EXPECT_EQ(warmup(200), 7);
}

TEST(RunSchedule, TheLearningRateFollowsTheBatch) {
  config::Recipe recipe;
  recipe.learning_rate = 2e-4;
  recipe.base_batch_size = 8;
  EXPECT_EQ(peak_learning_rate(recipe, 32), 2e-4);
  recipe.lr_scaling = config::LrScaling::Linear;
  EXPECT_DOUBLE_EQ(peak_learning_rate(recipe, 32), 8e-4);
  EXPECT_DOUBLE_EQ(peak_learning_rate(recipe, 8), 2e-4);
  recipe.lr_scaling = config::LrScaling::Sqrt;
  EXPECT_DOUBLE_EQ(peak_learning_rate(recipe, 32), 4e-4);
  EXPECT_DOUBLE_EQ(make_schedule(recipe, 100, 2).peak, 1e-4);
}

TEST(RunSchedule, AShortRunSeesTheFirstLearningRatesOfALongOne) {
  config::Recipe recipe;
  recipe.learning_rate = 0.5;
  recipe.warmup_steps = 10;
  const auto note_of = [&](int64_t total) {
    ::testing::internal::CaptureStderr();
    const optim::Schedule schedule = make_schedule(recipe, total, 1);
    for (int64_t step = 0; step < std::min<int64_t>(total, 10); ++step) {
      EXPECT_DOUBLE_EQ(schedule.at(step), 0.05 * static_cast<double>(step)) << total;
    }
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(note_of(5), HasSubstr("the warm-up of 10 steps is longer than the run of 5: the learning rate "
                                    "never reaches 0.5, its highest is 0.2\n"));
  EXPECT_THAT(note_of(1), HasSubstr("its highest is 0\n"));
  EXPECT_THAT(note_of(10), HasSubstr("than the run of 10"));
  EXPECT_EQ(note_of(11), "");
  EXPECT_EQ(make_schedule(recipe, 11, 1).at(10), 0.5);
}

// Compares the learning rate of every update, which follows from a recipe's keys, with reference values.
TEST(RunSchedule, TheValuesAreThoseOfTheReferences) {
  std::ifstream file(testing::source_folder() + "/tests/reference/data/schedules.json");
  const auto document = nlohmann::json::parse(file);
  const double peak = document.at("learning_rate");
  ASSERT_GT(document.at("cases").size(), 50u);
  for (const auto& reference : document.at("cases")) {
    nlohmann::json keys = reference.at("recipe");
    SCOPED_TRACE(keys.dump());
    keys["base_model"] = "m";
    keys["datasets"] = {{{"path", "d.jsonl"}}};
    keys["learning_rate"] = peak;
    const config::Recipe recipe = config::parse_recipe(keys.dump(), "r.yaml");
    const int64_t total = reference.at("total_steps");
    const optim::Schedule schedule = make_schedule(recipe, total, 1);
    const std::vector<double> values = reference.at("values");
    for (size_t step = 0; step < values.size(); ++step) {
      EXPECT_NEAR(schedule.at(static_cast<int64_t>(step)), values[step], 1e-12 * peak) << "step " << step;
    }
  }
}

std::vector<int64_t> evaluated(const config::Recipe& recipe) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 10; ++step) {
    if (is_evaluated(recipe, step, 10, 4, step % 4 == 0)) steps.push_back(step);
  }
  return steps;
}

TEST(RunSchedule, Evaluations) {
  using Steps = std::vector<int64_t>;
  config::Recipe recipe;
  EXPECT_EQ(evaluated(recipe), (Steps{4, 8, 10}));
  recipe.eval_strategy = config::Cadence::Steps;
  recipe.eval_steps = 3;
  EXPECT_EQ(evaluated(recipe), (Steps{3, 6, 9, 10}));
  // A number below 1 is a share of the run, rounded up to whole steps.
  recipe.eval_steps = 0.25;
  EXPECT_EQ(evaluated(recipe), (Steps{3, 6, 9, 10}));
  recipe.eval_steps = 0.01;
  EXPECT_EQ(evaluated(recipe).size(), 10u);
  // If eval_steps is 0, evaluations are as frequent as lines of the log.
  recipe.eval_steps = 0;
  recipe.logging_steps = 5;
  EXPECT_EQ(evaluated(recipe), (Steps{5, 10}));
  recipe.logging_steps = 0.31;
  EXPECT_EQ(evaluated(recipe), (Steps{4, 8, 10}));
  recipe.evals_per_epoch = 3.0;  // an epoch has 4 steps: every 1.33 steps, rounded up
  EXPECT_EQ(evaluated(recipe), (Steps{2, 4, 6, 8, 10}));
  recipe.evals_per_epoch = 2.0;
  EXPECT_EQ(evaluated(recipe), (Steps{2, 4, 6, 8, 10}));
  recipe.evals_per_epoch = 100.0;
  EXPECT_EQ(evaluated(recipe).size(), 10u);
  recipe.evals_per_epoch = 0.5;
  EXPECT_EQ(evaluated(recipe), (Steps{8, 10}));
  recipe.eval_strategy = config::Cadence::No;
  EXPECT_EQ(evaluated(recipe), Steps{});
}

TEST(RunSchedule, SavesAsOftenAsAskedAndAfterTheLastStep) {
  config::Recipe recipe;
  const auto saved = [&](int64_t total, int64_t per_epoch) {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= total; ++step) {
      if (is_saved(recipe, step, total, per_epoch, step % per_epoch == 0)) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_TRUE(saved(10, 4).empty());
  recipe.save_strategy = config::Cadence::Epoch;
  EXPECT_EQ(saved(10, 4), (std::vector<int64_t>{4, 8, 10}));
  recipe.save_strategy = config::Cadence::Steps;
  EXPECT_EQ(saved(1200, 4), (std::vector<int64_t>{500, 1000, 1200}));
  recipe.save_steps = 3;
  EXPECT_EQ(saved(10, 4), (std::vector<int64_t>{3, 6, 9, 10}));
  recipe.save_steps = 0.25;
  EXPECT_EQ(saved(10, 4), (std::vector<int64_t>{3, 6, 9, 10}));
  recipe.save_steps = 0.0;
  recipe.saves_per_epoch = 2.0;
  EXPECT_EQ(saved(9, 4), (std::vector<int64_t>{2, 4, 6, 8, 9}));
}

}  // namespace
}  // namespace tessera::train
