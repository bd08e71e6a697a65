// Tells where a run stands between two steps.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "tessera/data/step_source.h"
#include "tessera/optim/plateau.h"
#include "tessera/train/step/best_evaluation.h"
#include "tessera/train/step/early_stopping.h"
#include "tessera/train/step/loss_scaler.h"
#include "tessera/train/step/metrics.h"
#include "tessera/train/step/step_guard.h"

namespace tessera::train {

// Together with the recipe and the values of Training::tensors(), everything on which the steps to come
// depend. Random numbers are functions of the seed and the step, and the learning rate is one of the step and
// of `plateau`. The state says nothing of ranks.
struct TrainState {
  int64_t step = 0;     // steps made, also those that made no update
  data::Cursor cursor;  // where the next step begins in the data
  int64_t tokens = 0;   // of all steps made, over all ranks
  double first_loss = 0.0, last_loss = 0.0;
  LossScaler scaler;
  MetricsWindow window;  // the steps since the last line of metrics.jsonl
  StepGuard guard;
  EarlyStopping early_stopping;
  BestEvaluation best;
  optim::Plateau plateau;  // of reduce_lr_on_plateau

  // Tells whether the last step was the last one of an epoch.
  bool ends_epoch() const { return step > 0 && cursor.sample == 0; }
};

// Returns the state as a checkpoint keeps it.
nlohmann::ordered_json to_json(const TrainState& state);
// Reads what to_json() gave. Throws nlohmann::json::exception for anything else.
TrainState train_state_from(const nlohmann::ordered_json& json);

}  // namespace tessera::train
