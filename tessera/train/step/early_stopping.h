// Ends a run whose evaluation loss no longer falls.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "tessera/config/recipe.h"

namespace tessera::train {

// Decides when a run stops early. The decision is a function of the evaluation losses so far, so every rank
// and every run that goes on from a checkpoint comes to the same one.
class EarlyStopping {
 public:
  // Takes in the loss of an evaluation. It counts as better where it is below the best one by more than the
  // recipe's early_stopping_threshold.
  void judge(const config::EvaluationConfig& keys, double eval_loss);
  // Tells whether the last early_stopping_patience evaluations were no better.
  bool has_ended(const config::EvaluationConfig& keys) const {
    return keys.early_stopping_patience > 0 && num_worse_ >= keys.early_stopping_patience;
  }
  double best_loss() const { return best_loss_.value_or(0.0); }

  nlohmann::ordered_json to_json() const;
  static EarlyStopping from_json(const nlohmann::ordered_json& json);

 private:
  std::optional<double> best_loss_;
  int64_t num_worse_ = 0;  // evaluations since the best one
};

}  // namespace tessera::train
