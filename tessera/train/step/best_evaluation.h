// Remembers which evaluation of a run was its best.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

// Returns the number that the recipe's metric_for_best_model names, of which lower is better: the loss of all
// evaluation data, for "eval_<name>_loss" that of one dataset among several, and for a metric of a classifier
// ("eval_f1" or "f1") its negative, but for mse. Throws Error(Config) where there is nothing of that name.
double deciding_loss(const config::Recipe& recipe, const Evaluated& evaluated);

}  // namespace tessera::train
