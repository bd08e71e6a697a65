// The factor on the loss that keeps small gradients above float16's least number.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "tessera/config/recipe.h"

namespace tessera::train {

// Scales the loss dynamically (Micikevicius et al., "Mixed Precision Training", 2018, section 3.2) for runs
// in float16; in other dtypes the scale is 1 and never changes. A step whose gradients are not finite changes
// no weight and halves the scale; after loss_scale_window steps in a row that are finite it doubles. A scale
// that the recipe gives (loss_scale) stays.
class LossScaler {
 public:
  LossScaler() = default;
  // Begins with the scale that the recipe gives.
  explicit LossScaler(const config::PrecisionConfig& keys);

  // Tells whether steps that overflow are skipped.
  static bool is_on(const config::PrecisionConfig& keys) {
    return keys.dtype == config::ComputeType::Float16;
  }
  double scale() const { return scale_; }
  int64_t num_skipped() const { return num_skipped_; }  // steps skipped so far

  // Takes in whether the loss and gradients of step number `step` (0-based) were finite. Throws
  // Error(Numerics) where they overflow at the least scale.
  void update(const config::PrecisionConfig& keys, bool is_finite, int64_t step);
  // Makes what a run of another recipe has found out fit this one.
  void fit(const config::PrecisionConfig& keys);

  nlohmann::ordered_json to_json() const;
  // Reads what to_json() gave. Throws nlohmann::json::exception for anything else.
  static LossScaler from_json(const nlohmann::ordered_json& json);

 private:
  double scale_ = 1.0;
  int64_t num_finite_ = 0;  // steps since the scale changed
  int64_t num_skipped_ = 0;
};

}  // namespace tessera::train
