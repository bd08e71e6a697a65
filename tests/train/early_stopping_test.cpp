#include "tessera/train/step/early_stopping.h"

#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera::train {
namespace {

// Returns the number of the loss after which the run ends; 0 = none. The state is saved and restored before
// each loss, as in a checkpoint.
size_t ends_after(const std::vector<double>& losses, int64_t patience, double threshold = 0.0) {
  config::Recipe recipe;
  recipe.early_stopping_patience = patience;
  recipe.early_stopping_threshold = threshold;
  EarlyStopping stopping;
  for (size_t i = 0; i < losses.size(); ++i) {
    stopping = EarlyStopping::from_json(nlohmann::ordered_json::parse(stopping.to_json().dump()));
    stopping.judge(recipe, losses[i]);
    if (stopping.has_ended(recipe)) return i + 1;
  }
  return 0;
}

TEST(EarlyStopping, CountsTheEvaluationsSinceTheBest) {
  EXPECT_EQ(ends_after({3, 2, 2.5, 1, 1.5, 1.2, 0.5}, 2), 6u);
  EXPECT_EQ(ends_after({3, 2, 2.5, 1, 1.5, 1.2, 0.5}, 3), 0u);
  EXPECT_EQ(ends_after({3, 4}, 1), 2u);
  EXPECT_EQ(ends_after({3, 3}, 1), 2u) << "the same is none better";
  EXPECT_EQ(ends_after({3, 4, 5, 6}, 0), 0u) << "off";
}

TEST(EarlyStopping, AnImprovementIsAboveTheThreshold) {
  EXPECT_EQ(ends_after({3, 2.9, 2.8, 2.0}, 2, 0.5), 3u);
  EXPECT_EQ(ends_after({3, 2.4, 1.8, 1.2}, 1, 0.5), 0u);
}

}  // namespace
}  // namespace tessera::train
