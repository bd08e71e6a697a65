#include "tessera/train/step/early_stopping.h"

#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/train/step/best_evaluation.h"

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

TEST(DecidingMetric, IsTheOneThatTheRecipeNames) {
  const Evaluated losses{.loss = 2.0, .datasets = {{"chats", 1.5, 4}}};
  const Evaluated tasks{.tasks = {{"arc/acc", 0.75}, {"pages/perplexity", 9.0, false}}};
  Evaluated both = losses;
  both.tasks = tasks.tasks;
  const struct {
    const Evaluated& evaluated;
    const char *metric, *name;
    double cost;
  } rows[] = {{losses, "", "loss", 2.0},
              {losses, "eval_chats_loss", "eval_chats_loss", 1.5},
              {tasks, "", "eval/arc/acc", -0.75},
              {both, "", "loss", 2.0},
              {both, "eval/arc/acc", "eval/arc/acc", -0.75},
              {both, "eval/pages/perplexity", "eval/pages/perplexity", 9.0}};
  config::Recipe recipe;
  for (const auto& row : rows) {
    recipe.metric_for_best_model = row.metric;
    const DecidingMetric deciding = deciding_metric(recipe, row.evaluated);
    EXPECT_EQ(deciding.name, row.name);
    EXPECT_EQ(deciding.cost(), row.cost) << row.name;
  }
  EXPECT_EQ(to_json(both).dump(), R"({"eval_loss":2.0,"eval_losses":{"chats":1.5},)"
                                  R"("eval/arc/acc":0.75,"eval/pages/perplexity":9.0})");
  for (const char* metric : {"eval_loss", "loss", "arc/acc", "eval/arc/acc_norm"}) {
    recipe.metric_for_best_model = metric;
    EXPECT_THROW(deciding_metric(recipe, tasks), Error) << metric;
  }
}

}  // namespace
}  // namespace tessera::train
