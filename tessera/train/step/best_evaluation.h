// Remembers which evaluation of a run was its best.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tessera/config/recipe.h"
#include "tessera/train/step/metrics.h"

namespace tessera::train {

// The best evaluation so far, which is a function of the evaluation losses alone.
struct BestEvaluation {
  std::optional<double> loss;
  int64_t step = 0;  // after which it was made; 0 for none

  // Takes in the loss of an evaluation. Of several equal losses the first is the best.
  void judge(double eval_loss, int64_t after_step);

  nlohmann::ordered_json to_json() const;
  static BestEvaluation from_json(const nlohmann::ordered_json& json);
};

// Tells whether a checkpoint is saved after each evaluation that is the best so far, and kept.
bool keeps_best(const config::CheckpointConfig& keys);

// The number of an evaluation that decides which one is the best.
struct DecidingMetric {
  std::string name;  // "loss", or as metric_for_best_model names it
  double value = 0.0;
  bool higher_is_better = false;

  // Returns the value, or its negative, so that lower is better.
  double cost() const { return higher_is_better ? -value : value; }
};

// Returns the number that the recipe's metric_for_best_model names: the loss of all evaluation data, for
// "eval_<name>_loss" that of one dataset among several, a metric of a classifier ("eval_f1" or "f1"), or a
// task's ("eval/arc_easy/acc"). Without a name it is the loss, or without evaluation data the first metric of
// the tasks. Throws Error(Config) where there is nothing of that name.
DecidingMetric deciding_metric(const config::Recipe& recipe, const Evaluated& evaluated);

}  // namespace tessera::train
