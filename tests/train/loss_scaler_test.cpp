#include "tessera/train/step/loss_scaler.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/io/expect_error.h"

namespace tessera::train {
namespace {

config::Recipe half() {
  config::Recipe recipe;
  recipe.dtype = config::ComputeType::Float16;
  recipe.initial_scale_power = 4;
  recipe.loss_scale_window = 3;
  return recipe;
}

TEST(LossScaler, IsOneInOtherTypes) {
  config::Recipe recipe = half();
  recipe.dtype = config::ComputeType::BFloat16;
  LossScaler scaler(recipe);
  EXPECT_FALSE(LossScaler::is_on(recipe));
  scaler.update(recipe, true, 0);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, HalvesAtAnOverflowAndDoublesAfterAWindowWithoutOne) {
  LossScaler scaler(half());
  EXPECT_TRUE(LossScaler::is_on(half()));
  EXPECT_EQ(scaler.scale(), 16.0);
  const bool finite[] = {true, true, false, true, true, true, true, true, true, false, false};
  const double scales[] = {16, 16, 8, 8, 8, 16, 16, 16, 32, 16, 8};
  for (size_t i = 0; i < std::size(finite); ++i) {
    scaler.update(half(), finite[i], static_cast<int64_t>(i));
    EXPECT_EQ(scaler.scale(), scales[i]) << i;
  }
  EXPECT_EQ(scaler.num_skipped(), 3);
}

TEST(LossScaler, IsStuckAtTheLeast) {
  config::Recipe recipe = half();
  recipe.min_loss_scale = 5.0;
  LossScaler scaler(recipe);
  scaler.update(recipe, false, 0);
  scaler.update(recipe, false, 1);
  EXPECT_EQ(scaler.scale(), 5.0);
  testing::expect_error(ErrorKind::Numerics, {"LOSS-SCALE", "step 3"},
                        [&] { scaler.update(recipe, false, 2); });
}

TEST(LossScaler, OfTheRecipeStays) {
  config::Recipe recipe = half();
  recipe.loss_scale = 128.0;
  LossScaler scaler(recipe);
  for (int64_t step = 0; step < 9; ++step) scaler.update(recipe, true, step);
  EXPECT_EQ(scaler.scale(), 128.0);
  EXPECT_THROW(scaler.update(recipe, false, 9), Error);
}

TEST(LossScaler, GoesOn) {
  LossScaler before(half());
  for (const bool is_finite : {true, true, true, false, true, true}) before.update(half(), is_finite, 0);
  LossScaler after = LossScaler::from_json(nlohmann::ordered_json::parse(before.to_json().dump()));
  after.fit(half());
  EXPECT_EQ(after.to_json(), before.to_json());
  after.update(half(), true, 6);
  EXPECT_EQ(after.scale(), 2.0 * before.scale());
  EXPECT_EQ(after.num_skipped(), 1);
  // A recipe of another dtype, or with a scale of its own, keeps its scale, and the count of skipped steps.
  config::Recipe other = half();
  other.loss_scale = 128.0;
  after.fit(other);
  EXPECT_EQ(after.scale(), 128.0);
  other.dtype = config::ComputeType::Float32;
  after.fit(other);
  EXPECT_EQ(after.scale(), 1.0);
  EXPECT_EQ(after.num_skipped(), 1);
  EXPECT_THROW(LossScaler::from_json(nlohmann::ordered_json::object()), nlohmann::json::exception);
}

}  // namespace
}  // namespace tessera::train
