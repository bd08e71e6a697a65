#include "tessera/train/step/early_stopping.h"

#include <nlohmann/json.hpp>

namespace tessera::train {

void EarlyStopping::judge(const config::EvaluationConfig& keys, double eval_loss) {
  if (best_loss_ && !(eval_loss < *best_loss_ - keys.early_stopping_threshold)) {
    ++num_worse_;
    return;
  }
  best_loss_ = eval_loss;
  num_worse_ = 0;
}

nlohmann::ordered_json EarlyStopping::to_json() const {
  nlohmann::ordered_json json = {{"num_worse", num_worse_}};
  if (best_loss_) json["best_loss"] = *best_loss_;
  return json;
}

EarlyStopping EarlyStopping::from_json(const nlohmann::ordered_json& json) {
  EarlyStopping stopping;
  stopping.num_worse_ = json.at("num_worse");
  if (json.contains("best_loss")) stopping.best_loss_ = json.at("best_loss").get<double>();
  return stopping;
}

}  // namespace tessera::train
