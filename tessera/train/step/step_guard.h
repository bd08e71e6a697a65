// Watches the losses and gradients of a run for leaps.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tessera/config/recipe.h"

namespace tessera::train {

// Watches the values of one quantity over the last steps.
class SpikeWatch {
 public:
  static constexpr size_t kWindow = 128, kFewest = 32;

  // Tells whether `value` lies more than `threshold` standard deviations above the mean of the last kWindow
  // values, where a deviation counts as at least 2 % of the mean; false for the first kFewest. Then takes the
  // value in, cut down to that bound, so that a new level is learnt and one leap hides no other.
  bool is_spike(double value, double threshold);
  double mean() const;

  nlohmann::ordered_json to_json() const;
  static SpikeWatch from_json(const nlohmann::ordered_json& json);

 private:
  std::deque<double> values_;
};

// Decides what becomes of a step, before its update. The verdict is a function of the losses and gradient
// norms so far, so every rank and every run that goes on from a checkpoint comes to the same one.
class StepGuard {
 public:
  enum class Verdict { Update, Skip, RollBack };

  // Tells whether judge() may refuse an update, by another verdict than Update or by an error.
  static bool may_refuse(const config::GuardConfig& keys);

  // Judges step number `step` (1-based) as the recipe's loss_watchdog_* and spike_* keys say, and warns of a
  // leap. Throws Error(Numerics, "LOSS-WATCHDOG").
  Verdict judge(const config::GuardConfig& keys, int64_t step, double loss, double grad_norm);

  nlohmann::ordered_json to_json() const;
  static StepGuard from_json(const nlohmann::ordered_json& json);

 private:
  SpikeWatch losses_, norms_;
  int64_t high_losses_ = 0;  // in a row, above loss_watchdog_threshold
};

}  // namespace tessera::train
