#include "tessera/train/train_state.h"

#include <nlohmann/json.hpp>

namespace tessera::train {

nlohmann::ordered_json to_json(const TrainState& state) {
  return {{"step", state.step},
          {"epoch", state.cursor.epoch},
          {"sample", state.cursor.sample},
          {"tokens", state.tokens},
          {"first_loss", state.first_loss},
          {"last_loss", state.last_loss},
          {"loss_scaler", state.scaler.to_json()},
          {"window", state.window.to_json()},
          {"guard", state.guard.to_json()},
          {"early_stopping", state.early_stopping.to_json()}};
}

TrainState train_state_from(const nlohmann::ordered_json& json) {
  TrainState state;
  state.step = json.at("step");
  state.cursor = {json.at("epoch"), json.at("sample")};
  state.tokens = json.at("tokens");
  state.first_loss = json.at("first_loss");
  state.last_loss = json.at("last_loss");
  state.scaler = LossScaler::from_json(json.at("loss_scaler"));
  state.window = MetricsWindow::from_json(json.at("window"));
  state.guard = StepGuard::from_json(json.at("guard"));
  state.early_stopping = EarlyStopping::from_json(json.at("early_stopping"));
  return state;
}

}  // namespace tessera::train
