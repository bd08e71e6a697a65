// Which evaluation of a run was its best.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/config/recipe.h"
#include "tessera/train/metrics.h"

namespace tessera::train {

// A function of the evaluation losses so far.
struct BestEvaluation {
  std::optional<double> loss;
  int64_t step = 0;  // after which it was made; 0 for none

  // Of equal ones the first is the best.
  void judge(double eval_loss, int64_t after_step);

  nlohmann::ordered_json to_json() const;
  static BestEvaluation from_json(const nlohmann::ordered_json& json);
};

// Whether a checkpoint is saved after each evaluation that is the best so far, and stays.
bool keeps_best(const config::Recipe& recipe);

// metric_for_best_model: the loss of all evaluation data, or "eval_<name>_loss" of one dataset of them, where
// there are several. Throws Error(Config) where there is none of that name.
double deciding_loss(const config::Recipe& recipe, double loss, const std::vector<DatasetLoss>& datasets);

}  // namespace tessera::train
